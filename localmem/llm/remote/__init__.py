"""The backbone behind a server: vLLM, llama.cpp, Ollama, or any other that speaks the OpenAI protocol."""

"""Runs llama.cpp's HTTP server until its input ends: run_llama_cpp.py FOLDER MODEL CONTEXT [TEMPLATE]. Prints its URL.

FOLDER holds the package that carries the server (scripts/setup_engines), TEMPLATE a chat template in place of the
model's own.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    folder, model, context, *template = sys.argv[1:]
    sys.path.insert(0, folder)
    import xllamacpp  # type: ignore[import-not-found]  # not a dependency of the product

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.chat_template = "".join(Path(path).read_text(encoding="utf-8") for path in template)
    params.n_ctx, params.n_parallel = 2 * int(context), 2
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201
    sys.stdin.read()

"""The groups of settings: the backbone, the search, the conversation, the server. How they are read is in `config`."""

from collections.abc import Mapping
from datetime import tzinfo
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from localmem.errors import BadInput
from localmem.files import nearest
from localmem.times.zones import read_zone


def _expand(path: object) -> object:
    """The path with the home folder in place of a leading ~: no shell has read a settings file. "" is none."""
    if path == "":
        raise ValueError("name a path, or leave the setting out")
    return Path(path).expanduser() if isinstance(path, str) and path.startswith("~/") else path


UserPath = Annotated[Path, BeforeValidator(_expand)]


class Section(BaseModel):
    """A group of settings; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class LLMSettings(Section):
    """The backbone: where it runs and how."""

    backend: Literal["auto", "transformers", "vllm"] = "auto"
    """Backend; auto uses the server at url, else its own vLLM where there is a GPU with vLLM, else transformers."""
    url: str | tuple[str, ...] | None = None
    """URL of a running server (vLLM, llama.cpp, Ollama, LM Studio, SGLang, TGI or any OpenAI-compatible one), or a list
    of URLs of servers of one model; without one, the vllm backend starts its own."""
    served_as: str | None = None
    """Name of the model on that server; default: its name in the manifest."""
    api_key: str | None = None
    """API key of that server."""
    device: str = "auto"
    """Device for weights in this process: auto, cpu, cuda or cuda:N."""
    dtype: str = "auto"
    """Number type of the weights: auto (bfloat16 where the hardware supports it), float32, bfloat16 or float16."""
    context_length: int | None = Field(default=None, ge=256)
    """Maximum tokens of prompt and answer together; default: the server's or the model's limit, on a GPU as much of it
    as fits, with Ollama the Modelfile's num_ctx, else 8192."""
    arguments: tuple[str, ...] = ()
    """Extra command-line arguments for a vLLM server that localmem starts."""
    gpu_memory: float = Field(default=0.85, gt=0, le=1)
    """Share of each GPU's memory for that server; it takes some more, as do the encoder and the indexes beside it."""
    tensor_parallel: int = Field(default=1, ge=1)
    """Number of GPUs that share the weights of that server."""
    kv_cache: Literal["auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2"] = "auto"
    """Number type of that server's keys and values; fp8 holds twice as many tokens on a GPU that supports it."""
    adapter_slots: int = Field(default=4, ge=1)
    """Number of adapter folders that server holds at a time."""
    adapter_rank: int = Field(default=32, ge=1, le=512)
    """Highest rank of an adapter on that server."""
    background: int = Field(default=4, ge=1)
    """Maximum number of prompts in flight for sessions that are being remembered."""
    priorities: bool = False
    """Send replies before background prompts; the vLLM server at url must run with --scheduling-policy priority."""
    adapters: Mapping[str, UserPath] = Field(default_factory=dict)
    """LoRA folders, or names of imported adapters, by prompt name (theanine/link) or by system (theanine)."""

    @field_validator("adapters")
    @classmethod
    def _check_adapters(cls, adapters: Mapping[str, Path]) -> Mapping[str, Path]:
        if not adapters:
            return adapters
        from localmem.prompts import list_prompts  # imports a template engine, which few commands need

        prompts = list_prompts()
        names = {*prompts, *(name.partition("/")[0] for name in prompts)}
        for name in adapters:
            if name not in names:
                close = nearest(name, names) or "; use names such as theanine/link, or theanine for all of its prompts"
                raise ValueError(f"no prompt is called {name!r}{close}")
        return adapters

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for each in (url,) if isinstance(url, str) else url or ():
            try:
                is_whole = urlsplit(each).port != 0 and each.startswith(("http://", "https://"))
            except ValueError:
                is_whole = False
            if not is_whole:
                raise ValueError("give a URL such as http://127.0.0.1:8000")
        return url

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of running servers."""
        return (self.url,) if isinstance(self.url, str) else self.url or ()


class RetrievalSettings(Section):
    """How memory is searched."""

    retriever: Literal["dense", "bm25", "hybrid"] = "hybrid"
    """Retriever: dense (embeddings), bm25 (words) or hybrid (both)."""
    encoder: str = "minilm-l6-v2"
    """Name of the encoder in the manifest."""
    index: Literal["auto", "flat", "hnsw", "ivf", "pgvector"] = "auto"
    """Vector index: flat is exact; auto is flat up to 20,000 units and hnsw above; pgvector searches in a PostgreSQL
    database with that extension, as flat."""
    index_half: bool = True
    """Store vectors with 2 bytes per number instead of 4; flat search returns the same results."""
    half_life_days: float | None = Field(default=None, gt=0)
    """Recency half-life in days: a unit this much older needs twice the score; unset, age does not count."""
    dates_in_query: bool = False
    """Limit the search to dates named in an English query ("in May 2023", "yesterday")."""
    rerank: str | None = None
    """Cross-encoder that reranks the first hits: its name in the manifest, or a folder."""
    rerank_depth: int = Field(default=50, ge=1)
    """Number of hits to rerank."""
    rerank_budget_ms: int = Field(default=1000, ge=0)
    """Time limit of reranking per query in milliseconds; hits not reached keep their order after the reranked ones."""
    memory_mb: int = Field(default=2048, ge=1)
    """Maximum megabytes of all users' indexes in memory; the least recently used are evicted and rebuilt on demand."""
    device: str = "auto"
    """Device of the encoder, the vector index and the reranker: auto, cpu, cuda or cuda:N; auto is the GPU where there
    is one, and the CPU for the few texts of a turn."""
    language: str = "auto"
    """Language of bm25's stemmer and stop words; `auto` detects that of each text, `none` disables both."""


class StoreSettings(Section):
    """How conversations and memory are stored."""

    encryption: bool = False
    """Encrypt the store; an existing one with `localmem store encrypt`."""
    key: str | None = None
    """Source of the key of an encrypted store: prompt, keyring, or file:PATH."""

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: str | None) -> str | None:
        if key is not None and not (key in ("prompt", "keyring") or key.startswith("file:")):
            raise ValueError("give the source of the key and not the key: prompt, keyring or file:PATH")
        return key


class ChatSettings(Section):
    """The conversation itself."""

    user_name: str = "User"
    """Name of the user in prompts."""
    assistant_name: str = "Assistant"
    """Name of the assistant in prompts."""
    instructions: str = ""
    """The operator's instructions to the model, first in every system message."""
    memory_position: Literal["model", "system", "last"] = "model"
    """Position of recalled memory in the prompt: system message, last, or as the manifest says for the model."""
    reader: str = "model"
    """Reader that answers questions by quoting memory: its name or folder, none, or as the manifest says (model)."""
    stages: str = "model"
    """Model that does the steps of memory systems, such as summaries, by quoting: its name or folder, none (the
    backbone does them), or as the manifest says (model; evaluations then use the backbone)."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Maximum tokens of a reply; default: what the context leaves, or the model's limit in the manifest."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Temperature of replies, 0 for the most likely token; default: that of the memory system's prompt, mostly 0."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling: total probability of the tokens to sample from, with a temperature; default: all."""
    repetition_penalty: float | None = Field(default=None, gt=0, le=2)
    """Penalty for repeating earlier tokens, 1 for none; default: the model's in the manifest, mostly none."""
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    """Penalty on a token for each time it is already in the reply, 0 for none; default: the model's, mostly none."""
    template_kwargs: Mapping[str, object] = Field(default_factory=dict)
    """Fields for the model's chat template in all prompts, such as {"enable_thinking": false}."""
    carry: int = Field(default=12, ge=0)
    """Number of turns shown from closed sessions that are not yet remembered."""
    quarantine: bool = True
    """Withhold from memory what tries to instruct a model, in texts that the user shows, replies and programs' notes,
    until a person releases it."""
    timezone: str | None = None
    """Time zone of the user, for example Europe/Berlin; default: that of this machine."""
    day_first: bool | None = None
    """Read 9/11/25 as 9 November (true) or 11 September (false); default: as the locale says, else as either."""

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, name: str | None) -> str | None:
        try:
            read_zone(name or "UTC")
        except BadInput as error:
            raise ValueError(str(error).partition("; ")[2]) from error
        return name

    @property
    def zone(self) -> tzinfo | None:
        """The user's time zone; None for that of this machine."""
        return read_zone(self.timezone) if self.timezone else None


Scope = Literal["chat", "read", "admin"]


class KeySettings(Section):
    """What an API key may do, where it is for more than one user's memory."""

    user: str
    """User of the key."""
    trusted_users: bool = False
    """The client is trusted to say which of its users asks: each has a memory of their own, named USER/ID."""
    header: str = "X-OpenWebUI-User-Id"
    """Header with the id of the client's user. With the default, the field `user` of a chat request counts where the
    header is missing; any other header is set by a proxy, and the field is ignored."""
    operator: bool = False
    """The key may act for any user, whom the header X-Localmem-User names."""
    scopes: tuple[Scope, ...] = ("chat", "read", "admin")
    """What the key may do: chat; read (list, search and export the memory); admin (change, import and erase it)."""

    @property
    def is_proxy(self) -> bool:
        """Whether the header alone says who asks: people reach the server through a proxy, and write the rest."""
        return self.trusted_users and self.header != KeySettings.model_fields["header"].default


class QuotaSettings(Section):
    """What one user may store; without a value there is no limit."""

    units: int | None = Field(default=None, ge=1)
    """Most units in a user's memory; a request that would store more is refused with status 403."""
    megabytes: float | None = Field(default=None, gt=0)
    """Most megabytes of a user's texts in the store: what was said, and what memory made of it; then 403."""
    turns_per_day: int | None = Field(default=None, ge=1)
    """Most turns of a user within 24 hours; further ones are refused with status 429 and Retry-After."""


class ServerSettings(Section):
    """`localmem serve`."""

    host: str = "127.0.0.1"
    """Address to listen on; any other than loopback requires keys."""
    port: int = Field(default=8321, ge=0, le=65535)
    """Port to listen on; 0 picks a free one."""
    keys: Mapping[str, str | KeySettings] = Field(default_factory=dict)
    """User by API key in plain text, or {user, trusted_users, header, operator, scopes}; prefer `localmem keys`, which
    stores digests. Without keys all belongs to the default user."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may call the server from a browser, such as https://chat.example.org."""
    access_log: bool = False
    """Write a line for each request to the log: route, status and time, but no user and no text."""
    audit_log: UserPath | None = None
    """File for a line for each request that reads, changes or erases a memory: time, user of the key, user of the
    memory, path and status, but no text."""
    traces: str | None = None
    """URL of an OpenTelemetry collector (OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces) for traces of
    requests by stage, without texts and users; by default there are none."""
    idle_minutes: float = Field(default=30.0, gt=0, le=5_256_000)
    """Minutes without a turn after which a session is over."""
    workers: int = Field(default=1, ge=1)
    """Processes that serve, over one store; each with threads and limits of its own. More than one needs llm.url."""
    threads: int = Field(default=128, ge=1)
    """Maximum number of replies in progress; further requests wait."""
    waiting: int = Field(default=128, ge=0)
    """Maximum number of requests that wait for a reply to end; more are refused with status 429 and Retry-After."""
    grace_seconds: float = Field(default=10.0, ge=0, le=86_400)
    """Seconds that replies may continue after the server was told to stop."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Most requests a minute of one user; further ones are refused with status 429. Default: no limit."""
    quota: QuotaSettings = QuotaSettings()
    """What one user may store."""
    slow_seconds: float = Field(default=30.0, gt=0, le=86_400)
    """Seconds that a client may take to send a request's headers, and to begin with its body."""
    max_body_kb: int = Field(default=2048, ge=1)
    """Largest body of a request, in kB; larger ones are refused with status 413."""
    max_import_mb: int = Field(default=256, ge=1)
    """Largest body of an import or of past sessions, in MB."""

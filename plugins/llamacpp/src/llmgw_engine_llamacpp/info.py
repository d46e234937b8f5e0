"""What this plugin says about llama.cpp before anything is run."""

from __future__ import annotations

from llmgw_core.engine import ENGINE_API, EngineInfo, Program, Spelling
from llmgw_engine_llamacpp.renames import RENAMES

SERVER = "llama-server"
RPC_SERVER = "ggml-rpc-server"

# LLAMA_ARG_* and the config file in XDG_CONFIG_HOME (b10434 on) are read before `--help` is answered:
# `LLAMA_ARG_PORT=abc llama-server --help` exits 1.
UNSET_ENV = ("LLAMA_ARG_*", "LLAMA_API_KEY", "LLAMA_LOG_*", "LLAMA_OFFLINE", "LLAMA_CHAT_TEMPLATE_KWARGS")

_IN_THE_GGUF = "a GGUF file holds its tensors in their types; the server does not convert them"
_BY_LAYERS = "llama.cpp spreads layers over all devices that it sees, by their free memory"

IGNORED_FIELDS = {
    "rendezvous": "the head calls each worker at the worker's own port; there is no common meeting point",
    "parallel.tensor": "a size above 1 is refused: splitting by rows does not work over RPC",
    "parallel.pipeline": _BY_LAYERS,
    "parallel.data": "a size above 1 is refused: one server holds one copy of the model",
    "parallel.expert": "a size above 1 is refused: llama.cpp has no expert parallelism",
    "settings.dtype": _IN_THE_GGUF,
    "settings.quantization": _IN_THE_GGUF,
    "settings.gpu_memory_fraction": f"{_BY_LAYERS}; it knows a margin in MiB (--fit-target) but no fraction",
    "settings.tool_call_parser": "tool calls are read as the model's chat template says (--jinja, on by default)",
    "settings.trust_remote_code": "a GGUF file holds no code",
    "slot.interface": "the RPC connections go by address, as the system routes it",
    "slot.hcas": "the RPC connections are TCP; there is no NCCL",
}

INFO = EngineInfo(
    name="llamacpp",
    api=ENGINE_API,
    checked_versions=("b10068", "b10434", "b10991"),
    programs=(
        # b10434, run: `--ctx_size` is accepted, `--port=1` and a positional are refused, `-fa --help` swallows.
        Program(SERVER, commands=((SERVER,),), spelling=Spelling(underscore_is_dash=True, equals=False, swallows=True)),
        # The program was `rpc-server` up to b9093 and is `ggml-rpc-server` from b10068 on.
        Program(RPC_SERVER, commands=((RPC_SERVER,), ("rpc-server",)), spelling=Spelling(equals=False, swallows=True)),
    ),
    renames=RENAMES,
    surfaces="llmgw_engine_llamacpp.surfaces",
    # With a repeated flag the last value counts (b10434): these would change what is served, or where.
    own_flags=(
        "--host",
        "--port",
        "--rpc",
        "--api-prefix",
        "-m",
        "--model",
        "-hf",
        "-hfr",
        "--hf-repo",
        "-mu",
        "--model-url",
        "-a",
        "--alias",
    ),
    ending_flags=("-h", "--help", "--usage", "--version", "--list-devices", "--completion-bash", "-cl", "--cache-list"),
    ignored_fields=IGNORED_FIELDS,
)

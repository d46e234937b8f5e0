"""Flags that llama-server renamed or dropped: suggestions for people.

Source: the options of common/arg.cpp from 2024-11 to b11434, and the help of b10068, b10092, b10434 and b10991 as run.
`gone_from` is the first version of these that is known to refuse the flag.
"""

from __future__ import annotations

from llmgw_core.engine import Rename

_HELP = "llama-server --help, b10434 and b10991"
_SOURCE = "common/arg.cpp"


def _rename(old: str, new: str, gone_from: str, source: str = _SOURCE, flips: bool = False, note: str = "") -> Rename:
    return Rename(old, (new,) if new else (), gone_from, source, flips, note)


def _load_modes() -> tuple[Rename, ...]:
    modes = {"--mlock": "mlock", "--mmap": "mmap", "--no-mmap": "none", "--direct-io": "dio", "-dio": "dio"}
    note = "--load-mode exists from b10434 on"
    replaced = (_rename(old, f"--load-mode {mode}", "b10991", _HELP, note=note) for old, mode in modes.items())
    negated = (_rename(old, "", "b10991", _HELP, note="it was the default") for old in ("--no-direct-io", "-ndio"))
    return (*replaced, *negated)


def _drafts() -> tuple[Rename, ...]:
    """Refused since llama.cpp's pull request 22397, and still listed in the help."""
    new = {"max": ("--draft", "--draft-n", "--draft-max"), "min": ("--draft-min", "--draft-n-min")}
    note = "for ngram-mod: --spec-ngram-mod-n-"
    drafts = (
        _rename(old, f"--spec-draft-n-{end}", "b9093", note=note + end) for end, olds in new.items() for old in olds
    )
    ngrams = (
        _rename(
            f"--spec-ngram-{what}", f"--spec-ngram-simple-{what}", "b9093", note="each ngram method has its own now"
        )
        for what in ("size-n", "size-m", "min-hits")
    )
    return (*drafts, *ngrams)


def _dropped(gone_from: str, *names: str) -> tuple[Rename, ...]:
    return tuple(_rename(name, "", gone_from) for name in names)


_VOCODER = ("-hfv", "-hfrv", "--hf-repo-v", "-hffv", "--hf-file-v", "-mv", "--model-vocoder", "--tts-use-guide-tokens")
_SPACING = "counts the least spacing, no longer the interval"

RENAMES: tuple[Rename, ...] = (
    *_load_modes(),
    *_drafts(),
    _rename("--draft-model", "--spec-draft-model", "b10068", note="no version ever had --draft-model"),
    _rename("-cpent", "--checkpoint-min-step", "b10991", note=_SPACING),
    _rename("--checkpoint-every-n-tokens", "--checkpoint-min-step", "b10991", note=_SPACING),
    _rename("--no-webui", "--no-ui", "b10964", "a report to llama.cpp; b10991 documents both"),
    *_dropped("b10434", *_VOCODER),
    *_dropped("b10991", "-cd", "--ctx-size-draft", "--spec-draft-ctx-size", "--spec-replace", "--spec-draft-replace"),
    *_dropped("b10991", "--license"),
    *_dropped("b9093", "--embd-bge-small-en-default", "--embd-e5-small-en-default", "--embd-gte-small-default"),
    *_dropped("b9093", "--verbose-prompt"),
    *_dropped("b6160", "-dkvc", "--dump-kv-cache"),
    *_dropped("b5390", "-p", "--prompt", "-f", "--file", "-bf", "--binary-file", "--penalize-nl", "-ld", "--logdir"),
)

"""What llama.cpp's help texts document, and what no help text is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.engine import ONE, SWITCH, Arity, Flag, FlagState, FlagTable, NotCompleteHelp
from llmgw_core.testing.recorded import cut_between_lines, recorded_help, recorded_helps
from llmgw_engine_llamacpp import llmgw_read_help
from llmgw_engine_llamacpp.info import RPC_SERVER, SERVER

B10991 = "llamacpp-b10991.help.txt"
RPC = "llamacpp-rpc-b10991.help.txt"


def read(text: str, program: str = SERVER) -> FlagTable:
    return llmgw_read_help(program, text)


def recorded_servers() -> list[Path]:
    texts = [path for path in recorded_helps("llamacpp-") if "-rpc-" not in path.name]
    if not texts:
        pytest.skip("no recorded llama-server help")
    return texts


def find(table: FlagTable, name: str) -> Flag:
    flag = table.find(name)
    assert flag is not None, name
    return flag


def test_every_spelling_of_b10991_is_read() -> None:
    table = read(recorded_help(B10991))

    # common/arg.cpp of b10991 has 412 spellings for the server.
    assert len(table.names) == 412
    assert table.cuts == ()


@pytest.mark.parametrize(
    ("name", "arity"),
    [
        ("-h", SWITCH),
        ("--usage", SWITCH),
        ("-t", ONE),
        ("--n-predict", ONE),
        ("-nkvo", SWITCH),
        ("--no-kv-offload", SWITCH),
        ("-fa", ONE),
        ("-ot", ONE),
        ("--docker-repo", ONE),
        ("--logit-bias", ONE),
        ("--control-vector-layer-range", Arity(2, 2)),
        ("--fit-target", ONE),
        ("--chat-template-file", ONE),
        ("--spec-default", SWITCH),
    ],
)
def test_a_flag_takes_what_its_hint_says(name: str, arity: Arity) -> None:
    assert find(read(recorded_help(B10991)), name).arity == arity


@pytest.mark.parametrize(
    ("name", "listed", "outside", "is_open"),
    [
        ("-fa", ("on", "off", "auto", "1", "disabled"), ("--main-gpu", "maybe"), False),
        ("--fit", ("on", "off"), ("auto",), False),
        ("--split-mode", ("none", "layer", "row", "tensor"), ("diagonal",), False),
        ("--cache-type-k", ("f32", "iq4_nl", "q5_1"), ("fp8",), False),
        ("--spec-type", ("none", "draft-simple", "ngram-cache"), ("mtp",), False),
        ("--cpu-strict", ("0", "1"), (), True),
        ("--load-mode", ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio"), (), True),
        ("--reasoning-format", ("none", "deepseek", "deepseek-legacy"), ("auto",), True),
        ("--ctx-size", (), (), False),
        ("--tensor-split", (), (), False),
    ],
)
def test_values_are_closed_only_where_the_server_refuses_others(
    name: str, listed: tuple[str, ...], outside: tuple[str, ...], is_open: bool
) -> None:
    flag = find(read(recorded_help(B10991)), name)

    assert set(listed) <= set(flag.choices)
    assert not set(outside) & set(flag.choices)
    assert flag.open_choices is is_open
    assert flag.listed_value is (name == "--spec-type")


def test_a_removed_flag_that_is_still_listed_is_removed() -> None:  # A22, B08
    table = read(recorded_help(B10991))

    removed = [flag for flag in table.flags if flag.state is FlagState.REMOVED]

    assert [flag.names[-1] for flag in removed] == [
        "--draft-max",
        "--draft-n-min",
        "--spec-ngram-size-n",
        "--spec-ngram-size-m",
        "--spec-ngram-min-hits",
    ]
    assert removed[0].replaced_by == ("--spec-draft-n-max", "--spec-ngram-mod-n-max")
    assert removed[0].note == "the argument has been removed. use --spec-draft-n-max or --spec-ngram-mod-n-max"
    assert removed[3].replaced_by == (
        "--spec-ngram-simple-size-m",
        "--spec-ngram-map-k-size-m",
        "--spec-ngram-map-k4v-size-m",
    )


def test_a_deprecated_flag_names_its_successor() -> None:
    table = read(recorded_help("llamacpp-b10434.help.txt"))

    deprecated = {flag.names[-1]: flag.replaced_by for flag in table.flags if flag.state is FlagState.DEPRECATED}

    assert deprecated == {
        "--defrag-thold": (),
        "--mlock": ("--load-mode",),
        "--no-mmap": ("--load-mode",),
        "--no-direct-io": ("--load-mode",),
    }


@pytest.mark.parametrize("name", ["--direct-io", "-cpent", "--draft-model", "-np1", "--np", "-mlock", "--mlock", "-"])
def test_what_only_looks_like_a_flag_of_b10991_is_none(name: str) -> None:  # A23, A25, A27, B11
    assert not read(recorded_help(B10991)).documents(name)


def test_a_name_in_a_description_is_no_definition() -> None:  # B09
    text = (
        "-hf,  -hfr, --hf-repo <user>/<model>[:quant]\n"
        "                                        Hugging Face model repository; to disable, add\n"
        "                                        --no-mmproj\n"
        "                                        - mlock: force system to keep model in RAM\n"
    )

    assert read(text).names == ("-hf", "-hfr", "--hf-repo")


@pytest.mark.parametrize(
    ("line", "arity"),
    [
        ("-fa,   --flash-attn                     enable Flash Attention (default: disabled)", SWITCH),
        ("-fa,   --flash-attn [on|off|auto]       set Flash Attention use", ONE),
    ],
)
def test_the_switch_that_became_a_value_is_told_apart(line: str, arity: Arity) -> None:  # A21
    assert find(read(line), "-fa").arity == arity


def test_choices_of_an_older_build_in_brackets_are_closed() -> None:  # A33
    flag = find(read("--spec-type [none|ngram-cache|ngram-mod]   speculative decoding"), "--spec-type")

    assert flag.choices == ("none", "ngram-cache", "ngram-mod")
    assert not flag.open_choices


def test_log_lines_and_colours_around_the_help_change_nothing() -> None:  # B12
    noise = (
        "ggml_cuda_init: found 1 CUDA devices:\n"
        "  Device 0: NVIDIA GeForce RTX 3060 Ti, compute capability 8.6, VMM: yes\n"
        "load_backend: loaded CUDA backend from /app/libggml-cuda.so\n"
        "warning: no usable GPU found, --gpu-layers option will be ignored\n"
    )
    whole = recorded_help(B10991)

    assert read(noise + whole.replace("--port", "\x1b[1m--port\x1b[0m")) == read(whole)


def test_an_excerpt_is_read_as_cut() -> None:
    table = read("--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or\n")

    assert find(table, "--draft-max").state is FlagState.REMOVED
    assert "its first lines are gone" in table.cuts
    assert "its last lines are gone" in table.cuts


def test_a_definition_that_cannot_be_read_makes_the_text_doubtful() -> None:
    table = read(recorded_help(B10991).replace("--port PORT   ", "--port is a port, and a nice one   "))

    assert len(table.cuts) == 1
    assert "cannot be read: '--port is a port" in table.cuts[0]


def test_the_help_of_a_build_before_the_speculative_section_is_whole() -> None:
    text = "\n".join(
        [
            "----- common params -----\n\n-h,    --help, --usage                  print usage and exit",
            "\n----- sampling params -----\n\n--temp N                                temperature",
            "\n----- example-specific params -----\n\n--port PORT                             port to listen",
            "--fim-qwen-14b-spec                     use Qwen 2.5 Coder 14B",
        ]
    )

    assert read(text).cuts == ()


ERROR_TEXT = (
    "error while handling argument \"--flash-attn\": error: unkown value for --flash-attn: '--ctx-size'\n\n\nusage:\n"
    "-fa,   --flash-attn FA                  set Flash Attention use\n"
    "                                        (env: LLAMA_ARG_FLASH_ATTN)\n\n\nto show complete usage, run with -h\n"
)


@pytest.mark.parametrize(
    ("program", "text", "said"),
    [
        (SERVER, "", "is empty"),
        (SERVER, " \n\x1b[0m\n", "is empty"),
        (RPC_SERVER, "", "is empty"),
        (SERVER, ERROR_TEXT, "prints about one wrong argument"),
        (SERVER, ERROR_TEXT, "unkown value for --flash-attn: '--ctx-size'"),
        (SERVER, "error: invalid argument: -dio\n", "invalid argument: -dio"),
        (SERVER, "error: unknown argument: --threads-http", "unknown argument: --threads-http"),
        (SERVER, "bash: llama-server: command not found\n", "did not run: bash: llama-server: command not found"),
        (SERVER, "x: error while loading shared libraries: libggml.so\n", "error while loading shared libraries"),
        (SERVER, "Traceback (most recent call last):\n  File x\nValueError: y\n", "Traceback"),
        (SERVER, "usage: vllm serve [-h]\n\noptions:\n  -h, --help  show this\n", "no option of llama-server"),
        (RPC_SERVER, "error: unknown argument: -x\n", "no option is defined"),
        (RPC_SERVER, "usage: vllm serve [-h]\n\noptions:\n  -h, --help  show this\n", "not the help of an RPC worker"),
    ],
)
def test_what_is_no_help_is_refused_with_a_way_out(program: str, text: str, said: str) -> None:
    with pytest.raises(NotCompleteHelp) as refused:
        read(text, program)

    assert said in refused.value.reason
    assert "give" in refused.value.reason


def test_the_two_programs_are_not_confused() -> None:
    with pytest.raises(NotCompleteHelp, match="help of the RPC worker, not of llama-server"):
        read(recorded_help(RPC))
    with pytest.raises(NotCompleteHelp, match="help of llama-server, not of the RPC worker"):
        read(recorded_help(B10991), RPC_SERVER)


def test_the_workers_help_is_read() -> None:
    table = read(recorded_help(RPC), RPC_SERVER)

    takes = {flag.names[-1]: flag.arity == ONE for flag in table.flags}
    assert takes == {
        "--help": False,
        "--threads": True,
        "--device": True,
        "--host": True,
        "--port": True,
        "--cache": False,
    }
    assert table.cuts == ()


def test_an_older_workers_help_is_read() -> None:
    text = (
        "  -h, --help                show this help message and exit\n"
        "  -H HOST, --host HOST      host to bind to\n"
        "  -c,      --cache          enable local file cache\n"
    )

    table = read(text, RPC_SERVER)

    assert find(table, "--host").arity == find(table, "-H").arity == ONE
    assert find(table, "-c").arity == SWITCH
    assert table.cuts == ()


# The law of cuts: whatever lines a text loses at either end, the loss is noticed and no flag is read wrongly.


def test_a_cut_that_loses_a_definition_is_noticed_and_makes_no_flag_wrong() -> None:
    *_, newest = recorded_servers()
    for path in recorded_servers():
        check_cuts(path.read_text(), SERVER, everywhere=path == newest)


def test_a_cut_of_the_workers_help_is_noticed() -> None:
    check_cuts(recorded_help(RPC), RPC_SERVER, everywhere=True)


def check_cuts(text: str, program: str, *, everywhere: bool) -> None:
    whole = read(text, program)
    for parts in cut_between_lines(text, everywhere=everywhere):
        for part in parts:
            check_part(whole, part, program)


def check_part(whole: FlagTable, text: str, program: str) -> None:
    try:
        part = read(text, program)
    except NotCompleteHelp:
        return
    assert part.cuts or len(part.flags) == len(whole.flags), text[-200:]
    for flag in part.flags:
        known = find(whole, flag.names[0])
        assert (flag.names, flag.arity, flag.state) == (known.names, known.arity, known.state)
        assert flag.open_choices or flag.choices in (known.choices, ())


def test_a_text_cut_in_the_middle_of_its_last_lines_is_noticed() -> None:
    text = recorded_help(B10991)
    for at in range(len(text) - 400, text.rindex("--spec-default") + len("--spec-default")):
        assert "its last lines are gone" in read(text[:at]).cuts


@pytest.mark.parametrize("program", [SERVER, RPC_SERVER])
def test_no_byte_cut_gives_a_trusted_definition_that_is_wrong(program: str) -> None:
    text = recorded_help(B10991 if program == SERVER else RPC)
    whole = read(text, program)
    for at in range(1, len(text), 1 if program == RPC_SERVER else 211):
        for part in (text[:at], text[at:]):
            try:
                table = read(part, program)
            except NotCompleteHelp:
                continue
            for flag in table.flags:
                known = whole.find(flag.names[0])
                assert flag.doubt or (known and (flag.arity, flag.state) == (known.arity, known.state)), part[-80:]


def damaged(text: str, change: str) -> str:
    """What `fold -w`, `cut -c` and `unexpand -a` make of a text."""
    name, _, width = change.partition(" ")
    lines = text.split("\n")
    if name == "cut":
        return "\n".join(line[: int(width)] for line in lines)
    if name == "fold":
        wide = int(width)
        return "\n".join(line[at : at + wide] for line in lines for at in range(0, max(len(line), 1), wide))
    return text.replace(" " * 8, "\t") if name == "tab" else text.replace("\n", {"cr": "\r", "crlf": "\r\n"}[name])


@pytest.mark.parametrize(
    "change", [f"{how} {width}" for how in ("cut", "fold") for width in (40, 60, 72, 80, 110, 120)]
)
def test_lines_that_were_cut_or_broken_give_no_trusted_definition_that_is_wrong(change: str) -> None:
    whole = read(recorded_help(B10991))
    table = read(damaged(recorded_help(B10991), change))
    for flag in whole.flags:
        found = [known for known in map(table.find, flag.names) if known and not known.doubt]
        assert all(
            (known.arity, known.choices, known.state) == (flag.arity, flag.choices, flag.state) for known in found
        )
        assert table.cuts or found or any(map(table.documents, flag.names))


@pytest.mark.parametrize("change", ["cr", "crlf"])
def test_line_ends_and_a_mark_change_nothing(change: str) -> None:
    assert read("\ufeff" + damaged(recorded_help(B10991), change)) == read(recorded_help(B10991))


def test_only_line_ends_end_lines() -> None:
    text = recorded_help(B10991)
    assert read(text.replace("print usage and exit", "print\u2028--usage\x85and\x0cexit")) == read(text)


def test_a_prompt_below_the_whole_text_changes_nothing() -> None:
    assert read(recorded_help(B10991) + "user@gpu01:~$ \n") == read(recorded_help(B10991))


def test_garbage_is_quoted_printable_and_short() -> None:
    with pytest.raises(NotCompleteHelp) as refused:
        read("\x00\x1b[2J\x07" + "ab\x00" * 500)
    assert refused.value.reason.isprintable()
    assert len(refused.value.reason) < 400


@given(
    st.text() | st.lists(st.sampled_from(["-", "--a", " ", ",", "\n", "N", "[a|b]", "<", ">", "----- x params -----"]))
)
def test_any_text_is_read_or_refused(text: str | list[str]) -> None:
    for program in (SERVER, RPC_SERVER):
        try:
            read("".join(text), program)
        except NotCompleteHelp as refused:
            assert refused.reason  # noqa: PT017 — both outcomes are right

"""What the pages say is so: their programs run, their tables are whole, their links lead somewhere."""

import re
import subprocess
import sys
import tomllib
from enum import Enum
from pathlib import Path

import attrs
import click
import pytest

import llmgw_core
from llmgw_core import hooks
from llmgw_core.agent import inventory, offers, reaper, shard_files
from llmgw_core.agent.settings import AgentFile
from llmgw_core.agent.weights import LIMIT_S as WEIGHTS_LIMIT_S
from llmgw_core.cli.agent import agent
from llmgw_core.cli.control import control
from llmgw_core.cli.ctl import ctl
from llmgw_core.cli.engine_check import engine_check
from llmgw_core.cli.gateway import gateway
from llmgw_core.codec import parse_catalog
from llmgw_core.engine.health import FailureKind
from llmgw_core.examine.installed import DEFAULT_TIMEOUT_S
from llmgw_core.examine.process import LINGER_S, OUTPUT_LIMIT_BYTES
from llmgw_core.gateway.board import CAUSES, Board
from llmgw_core.gateway.metrics import render_metrics
from llmgw_core.gateway.place import Places
from llmgw_core.model.catalog import MOST_GPUS, MOST_NODES, MOST_REPLICAS, HealthTimings, Model, Profile, Sidecar
from llmgw_core.model.node import RENDEZVOUS_PORTS, SERVE_PORTS
from llmgw_core.model.replica import Speculative
from llmgw_core.plan import backoff, cause, liveness, loss, port, restart
from llmgw_core.plan.engine_check import EngineReport, FlagReport, Outcome
from llmgw_core.plan.replica_state import ReplicaState
from llmgw_core.plan.verdict import Verdict
from llmgw_core.plugins import load_engines
from llmgw_core.wire.message import MESSAGE_LIMIT_BYTES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "GLOSSARY.md", *DOCS.glob("*.md")])
TIMEOUT_S = 120


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def first_cells(text: str) -> dict[str, str]:
    """The rows of all tables, by what stands between backticks in the first cell."""
    return {match[1]: match[2] for match in re.finditer(r"^\| `([^`]+)`[^|]*\|(.*)\|$", text, re.MULTILINE)}


def run(*words: str | Path, path: Path | None = None, stdin: str = "", wanted: int = 0) -> str:
    ended = subprocess.run(
        [str(word) for word in words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=path,
        env={"PATH": "/nonexistent", "PYTHONPATH": str(path or "")},
    )
    assert ended.returncode == wanted, f"{words}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


# the programs


def test_the_example_for_custom_tooling_prints_what_the_page_says() -> None:
    (example,) = blocks(page("custom-tooling.md"), "python")
    (printed,) = blocks(page("custom-tooling.md"), "text")
    assert run(sys.executable, "-c", example) == printed


def test_the_readmes_example_runs() -> None:
    example = next(each for each in blocks((ROOT / "README.md").read_text(), "") if "import llmgw_core" in each)
    assert run(sys.executable, "-c", example) == "accepted\n"


def test_the_example_catalog_is_one_that_vllm_takes(tmp_path: Path) -> None:
    example, *_ = blocks(page("reference-catalog.md"), "toml")
    (tmp_path / "catalog.toml").write_text(example)
    llmgw = Path(sys.executable).with_name("llmgw")
    check = ["ctl", "engine-check", "vllm", "--engine-version", "0.32.0", "--catalog", "catalog.toml"]
    run(llmgw, *check, path=tmp_path)


@pytest.mark.parametrize("example", blocks(page("reference-catalog.md"), "toml"))
def test_every_example_of_a_catalog_is_one(example: str) -> None:
    assert parse_catalog(example, "catalog.toml").profiles


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that, in PYTHONPATH, has the how-to's two plugins installed."""
    site = tmp_path_factory.mktemp("acme")
    text = page("how-to-write-an-engine-plugin.md")
    for block in blocks(text, "python"):
        name = block.splitlines()[0].removeprefix("# ").rpartition("/")[2]
        (site / name).write_text(block, encoding="utf-8")
    for block in blocks(text, "toml"):
        project = tomllib.loads(block)["project"]
        groups = project["entry-points"].items()
        info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
        lines = [f"[{group}]\n{name} = {value}\n" for group, entries in groups for name, value in entries.items()]
        (info / "entry_points.txt").write_text("".join(lines))
    return site


def test_the_how_tos_plugin_keeps_the_contract(acme: Path) -> None:
    said = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_contract.py", path=acme)
    assert re.search(r"\b\d\d passed", said)


def test_the_how_tos_plugins_are_checked_and_applied(acme: Path) -> None:
    llmgw = Path(sys.executable).with_name("llmgw")
    listed = run(llmgw, "engines", path=acme)
    assert re.search(r"^acme +llmgw-engine-acme 0\.1\.0 +\S+ +3\.0$", listed, re.MULTILINE)
    assert "site plugin numa: acme-site 0.1.0" in listed
    assert "refused" not in listed
    options = ("model", "name", "host", "port", "tensor-parallel-size", "ctx", "max-sequences")
    usage = "usage: acme-serve " + " ".join(f"[--{option} X]" for option in options)
    text = f"{usage}\n\noptions:\n" + "".join(f"  --{option} X  a value\n" for option in options)
    check = (llmgw, "ctl", "engine-check", "acme", "--help-output", "-")
    assert "--context-length  not documented" in run(*check, path=acme, stdin=text, wanted=1)
    assert "accepts all 7 flags" in run(*check, path=acme, stdin=text.replace("--ctx", "--context-length"))
    ask = (
        "import llmgw_core as core; engines = core.load_engines();"
        "print(engines.build_command(engines.widest_specs('acme')[0].shards[0]).argv[:3])"
    )
    assert run(sys.executable, "-c", ask, path=acme) == "('numactl', '--interleave=all', 'acme-serve')\n"


# the references


@pytest.mark.parametrize("option", [each for each in engine_check.params if isinstance(each, click.Option)])
def test_every_option_is_in_the_reference(option: click.Option) -> None:
    assert set(option.opts) <= options_in_the_reference()


def test_no_option_in_the_reference_is_made_up() -> None:
    assert options_in_the_reference() <= {name for each in engine_check.params for name in each.opts} | {"-h", "--help"}


def options_in_the_reference() -> set[str]:
    """What the first cells of the tables name."""
    cells = re.findall(r"^\| (`-[^|]*)\|", page("reference-engine-check.md").replace("\\|", "/"), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(--?[a-z][\w-]*)", cell)}


@pytest.mark.parametrize("value", [*Verdict, *Outcome])
def test_every_verdict_and_outcome_is_in_the_reference(value: Verdict | Outcome) -> None:
    assert value.value in first_cells(page("reference-engine-check.md"))


def test_verdicts_count_as_the_reference_says() -> None:
    rows = first_cells(page("reference-engine-check.md").partition("## Verdicts")[2])
    counted = {verdict: rows[verdict.value].rpartition("|")[2].strip() == "pass" for verdict in Verdict}
    assert counted == {verdict: verdict.passes for verdict in Verdict}


@pytest.mark.parametrize(
    "field", [*attrs.fields(EngineReport), *attrs.fields(FlagReport)], ids=lambda field: field.name
)
def test_every_field_of_the_json_is_in_the_reference(field: "attrs.Attribute[object]") -> None:
    assert field.name in first_cells(page("reference-engine-check.md").partition("## JSON")[2])


def test_the_limits_are_those_of_the_code() -> None:
    limits = page("reference-engine-check.md").partition("## Limits")[2]
    assert f"| {DEFAULT_TIMEOUT_S:g} s (`--timeout`)" in limits
    assert f"| {LINGER_S:g} s;" in limits
    assert f"| {OUTPUT_LIMIT_BYTES // 2**20} MiB of each stream" in limits


def test_the_spellings_are_those_of_the_plugins() -> None:
    text = page("reference-engine-check.md")
    expected = []
    engines = load_engines({"vllm", "sglang", "llamacpp", "sim"})
    for plugin in engines.loaded:
        programs = plugin.info.programs
        for program in programs:
            name = plugin.info.name + (f", `{program.name}`" if len(programs) > 1 else "")
            it = program.spelling
            rules = (it.underscore_is_dash, it.equals, it.dotted, it.abbreviates, it.attached, it.swallows)
            expected.append(f"| {name} | " + " | ".join("yes" if rule else "no" for rule in rules) + " |")
    assert [row for row in expected if row not in text] == []


def test_every_public_name_is_in_the_table_of_names() -> None:
    rows = first_cells(page("custom-tooling.md").partition("## The public names")[2])
    assert sorted(rows) == sorted(llmgw_core.__all__)


@pytest.mark.parametrize(
    ("kind", "section"),
    [
        (Model, "`[models.NAME]`"),
        (Profile, "`[profiles.NAME]`"),
        (Speculative, "`[profiles.NAME.speculative]`"),
        (HealthTimings, "`[profiles.NAME.health]`"),
        (Sidecar, "`[profiles.NAME.sidecars.NAME]`"),
    ],
)
def test_the_catalogs_fields_and_defaults_are_those_of_the_code(kind: type, section: str) -> None:
    rows = first_cells(page("reference-catalog.md").partition(f"## {section}\n")[2].partition("\n## ")[0])
    expected = {field.name: described_default(field) for field in attrs.fields(kind)}
    assert {name: row.split("|")[1].strip() for name, row in rows.items()} == expected


def described_default(field: "attrs.Attribute[object]") -> str:
    default = field.default
    if default is attrs.NOTHING:
        return "required"
    if default is None:
        return "not set"
    if default == () or isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return "empty"
    if attrs.has(type(default)):
        return "see below"
    if isinstance(default, Enum):
        return str(default.value)
    return f"{default:g}" if isinstance(default, float) else str(default).lower()


def commands_of(group: click.Group, *names: str) -> dict[str, click.Command]:
    """The commands of a group and of its groups, by their words."""
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found[" ".join((*names, name))] = command
        if isinstance(command, click.Group):
            found |= commands_of(command, *names, name)
    return found


CTL = commands_of(ctl)


@pytest.mark.parametrize("words", [name for name in CTL if name != "cert"])
def test_every_command_of_ctl_is_in_the_reference_with_its_options(words: str) -> None:
    text = page("reference-ctl.md")
    assert re.search(rf"^\| `{words}\b", text, re.MULTILINE)
    if words != "engine-check":  # it has a page of its own
        options = {name for each in CTL[words].params if isinstance(each, click.Option) for name in each.opts}
        documented = set(re.findall(r"^\| `(--[a-z-]+)", text, re.MULTILINE))
        assert options <= documented


def test_every_option_and_key_of_the_agent_is_in_the_reference() -> None:
    text = page("reference-control-and-agent.md")
    options = {name for each in agent.params for name in each.opts if name != "--config"}
    keys = {field.name for field in attrs.fields(AgentFile)}
    assert [name for name in (*options, *keys) if f"`{name}" not in text] == []


def metric_names() -> list[str]:
    """With their endings, but for a histogram's."""
    text = render_metrics(Board(), Places()).decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    return [name for name, kind in kinds.items() if kind != "gauge" or not name.endswith("_created")]


@pytest.mark.parametrize(
    ("command", "name"), [(control, "reference-control-and-agent.md"), (gateway, "reference-gateway.md")]
)
def test_every_option_of_the_daemons_is_in_the_reference(command: click.Command, name: str) -> None:
    options = {option for each in command.params if isinstance(each, click.Option) for option in each.opts}
    assert [option for option in sorted(options) if f"| `{option}" not in page(name)] == []


def test_every_metric_of_the_gateway_is_in_the_reference() -> None:
    text = page("reference-gateway.md")
    assert [name for name in metric_names() if f"`{name}`" not in text] == []
    assert [cause for cause in CAUSES if f"`{cause}`" not in text] == []


@pytest.mark.parametrize("state", list(ReplicaState))
def test_every_state_of_a_replica_is_in_the_reference(state: ReplicaState) -> None:
    assert state.value in first_cells(page("reference-replicas.md"))


KINDS = [*(kind.value for kind in FailureKind), restart.NODE_LOST, cause.GONE, cause.LATE]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_failure_has_a_way_out(kind: str) -> None:
    assert kind in first_cells(page("how-to-find-out-why-a-replica-is-not-up.md"))


@pytest.mark.parametrize(
    "row",
    [
        f"| engines, on each node | {SERVE_PORTS} |",
        f"| rendezvous, on each node | {RENDEZVOUS_PORTS} |",
        f"| between two rendezvous ports | {port.RENDEZVOUS_STEP} |",
        f"| heartbeat of an agent | {liveness.HEARTBEAT_S:g} s |",
        f"| heartbeats of the whole fleet | at most {liveness.FLEET_BEATS_PER_S:g} in a second",
        f"| `suspect` after | {liveness.MISSED_BEATS} missed beats |",
        f"| `lost` after | {liveness.LOST_AFTER_S:g} s |",
        f"| mass loss | at least {loss.GUARD_LEAST} nodes and more than {loss.GUARD_FRACTION:g} of the fleet",
        f"full jitter, {backoff.FIRST_S:g} s doubling to {backoff.MOST_S:g} s, reset after {backoff.RESET_AFTER_S:g} s",
        f"| one message | {MESSAGE_LIMIT_BYTES // 2**20} MiB |",
        f"| replicas of a model | at most {MOST_REPLICAS:,} |",
        f"| nodes of a replica · GPUs on each | at most {MOST_NODES:,} · {MOST_GPUS} |",
        f"| start deadline | {HealthTimings().start_deadline_s:g} s",
        f"| probe | every {HealthTimings().probe_every_s:g} s;",
        f"| unready after | {HealthTimings().misses} misses",
        f"| stall | {HealthTimings().stall_s:g} s |",
        f"| sidecar ready within | {attrs.fields(Sidecar).ready_within_s.default:g} s |",
        f"| back-off | {restart.FIRST_S:g} s, doubling to {restart.MOST_S:g} s |",
        f"| a clean slate after | {restart.STABLE_S:g} s ready |",
        f"| a node comes last for a replica after | {restart.REPEATED} failures",
        f"| taken ports and lost nodes that cost no waiting | {restart.FREE} in a row |",
        f"| engines looked at | every {inventory.INVENTORY_EVERY_S:g} s",
        f"| weights looked at | every {offers.WEIGHTS_EVERY_S:g} s, at most {WEIGHTS_LIMIT_S:g} s for one source",
        f"generations | {reaper.LOG_BYTES // 2**20} MiB · {reaper.LOG_FILES} · {shard_files.KEPT_GENERATIONS},",
    ],
)
def test_the_page_of_limits_has_the_numbers_of_the_code(row: str) -> None:
    assert row in page("reference-limits.md")


def test_every_hook_is_in_the_architectures_table() -> None:
    rows = first_cells((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    documented = {name.partition("(")[0] for name in rows}
    assert {name for name in vars(hooks) if name.startswith("llmgw_")} <= documented


def test_every_module_of_the_core_is_in_the_architectures_tree() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    core = ROOT / "src" / "llmgw_core"
    modules = [path.name for path in core.glob("*.py") if not path.name.startswith("_")]
    packages = [f"src/llmgw_core/{path.parent.name}/" for path in core.glob("*/__init__.py")]
    assert [name for name in (*modules, *packages) if name not in text] == []


# the links


@pytest.mark.parametrize("source", PAGES, ids=lambda path: path.name)
def test_relative_links_lead_to_files_and_headings(source: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", source.read_text(encoding="utf-8"))
    broken = [link for link in links if "://" not in link and not leads_somewhere(source, link)]
    assert broken == []


def leads_somewhere(source: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (source.parent / name) if name else source
    if not anchor:
        return target.exists()
    headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
    return anchor in [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("source", PAGES, ids=lambda path: path.name)
def test_lines_are_not_longer_than_120_but_for_tables(source: Path) -> None:
    lines = source.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|") and "$ " not in line] == []


def test_every_page_is_in_the_index() -> None:
    index = page("index.md")
    assert [path.name for path in DOCS.glob("*.md") if path.name != "index.md" and f"({path.name})" not in index] == []

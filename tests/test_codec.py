from contextlib import suppress
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.codec import BadFile, parse_catalog
from llmgw_core.engine import Speculative
from llmgw_core.model.catalog import HealthTimings, Sidecar
from llmgw_core.model.route import Affinity

GOOD = """
[models."org/qwen3 30b"]
source = "/models/qwen3"
replicas = 2
profiles = ["big", "small"]
labels = { team = "search", "cost centre" = "4711" }

[profiles.big]
engine = "vllm"
nodes = 2
gpus_per_node = 8
min_gpu_memory_mib = 80000
tensor_parallel = 8
pipeline_parallel = 2
gpu_memory_fraction = 1
prefix_caching = false
speculative = { method = "ngram", draft_tokens = 4 }
extra_args = ["--seed", "1", "--cache", "127.0.0.1:{cache.port}"]
env = { A = "1" }

[profiles.big.sidecars.cache]
command = ["lmcache_server", "localhost", "{port}"]
ready_within_s = 20

[profiles.big.health]
start_deadline_s = 3600

[profiles.small]
engine = "llamacpp"
"""


def mistakes(text: str) -> list[str]:
    with pytest.raises(BadFile) as refused:
        parse_catalog(text, "catalog.toml")
    return str(refused.value).splitlines()


def test_a_catalog_is_read() -> None:
    catalog = parse_catalog(GOOD, "catalog.toml")
    model, big = catalog.models["org/qwen3 30b"], catalog.profiles["big"]
    assert model.profiles == ("big", "small")
    assert model.labels == {"team": "search", "cost centre": "4711"}
    assert (big.parallel.world, big.env, big.min_gpu_memory_mib) == (16, MappingProxyType({"A": "1"}), 80000)
    assert big.extra_args == ("--seed", "1", "--cache", "127.0.0.1:{cache.port}")
    assert big.settings.speculative == Speculative("ngram", 4)
    assert big.settings.prefix_caching is False
    assert big.health == HealthTimings(start_deadline_s=3600)
    assert dict(big.sidecars) == {
        "cache": Sidecar(command=("lmcache_server", "localhost", "{port}"), ready_within_s=20)
    }
    assert catalog.profiles["small"].settings.context_length is None
    assert catalog.model_of("small") == ("org/qwen3 30b", model)


def test_all_mistakes_are_reported_at_once_each_with_its_line_and_path() -> None:
    said = mistakes(
        """
        [models.a]
        source = 3
        profiles = "big"
        [profiles.big]
        engine = "vllm"
        nodes = "two"
        tensor_parallel = 1.5
        trust_remote_code = 1
        extra_args = ["--seed",
            1]
        env = { A = 1 }
        speculative = { method = "ngram" }
        gpus = 8
        [profiles.small]
        nodes = true
        [profile.typo]
        """
    )
    assert said == [
        "catalog.toml:3: models.a.source: expected a text, got 3",
        'catalog.toml:4: models.a.profiles: expected a list, got "big"',
        'catalog.toml:7: profiles.big.nodes: expected an integer, got "two"',
        "catalog.toml:8: profiles.big.tensor_parallel: expected an integer, got 1.5",
        "catalog.toml:9: profiles.big.trust_remote_code: expected true or false, got 1",
        "catalog.toml:11: profiles.big.extra_args[1]: expected a text, got 1",
        "catalog.toml:12: profiles.big.env.A: expected a text, got 1",
        "catalog.toml:13: profiles.big.speculative.draft_tokens: is missing",
        "catalog.toml:14: profiles.big: unknown key gpus",
        "catalog.toml:15: profiles.small.engine: is missing",
        "catalog.toml:16: profiles.small.nodes: expected an integer, got true",
        "catalog.toml:17: unknown key profile",
    ]


def test_several_bad_values_of_one_table_are_all_told() -> None:
    assert mistakes("[profiles.p]\nengine = ''\nnodes = 0\ngpus_per_node = 65\nextra_args = ['']") == [
        "catalog.toml:2: profiles.p.engine: is empty",
        "catalog.toml:3: profiles.p.nodes: expected 1 to 1024, got 0",
        "catalog.toml:4: profiles.p.gpus_per_node: expected 0 to 64, got 65",
        "catalog.toml:5: profiles.p.extra_args[0]: an empty argument",
    ]


def test_what_is_wrong_between_tables_is_told_with_what_is_wrong_in_others() -> None:
    assert mistakes(
        """[models.a]
source = "x"
profiles = ["p", "broken", "nowhere"]
[models.broken]
[profiles.broken]
engine = "sim"
nodes = "two"
[profiles.p]
engine = "sim"
tensor_parallel = 3
nodes = 2
"""
    ) == [
        "catalog.toml:3: models.a.profiles[2]: no profile 'nowhere' (there are: broken, p)",
        "catalog.toml:4: models.broken.source: is missing",
        "catalog.toml:4: models.broken.profiles: is missing",
        'catalog.toml:7: profiles.broken.nodes: expected an integer, got "two"',
        "catalog.toml:8: profiles.p: tensor 3 x pipeline 1 x data 1 = 3 does not divide over 2 nodes",
    ]


def test_what_is_wrong_between_tables_is_told_of_a_table_that_has_other_mistakes() -> None:
    assert mistakes(
        """[models.a]
source = "x"
replicas = "two"
profiles = ["p", "nowhere"]
aliases = ["b"]
[models.b]
profiles = ["nowhere"]
[profiles.p]
engine = "sim"
gpus_per_node = 4
tensor_parallel = 8
extra_args = ["{cache.port}"]
[profiles.p.health]
misses = 0
[profiles."#"]
colour = "red"
"""
    ) == [
        'catalog.toml:3: models.a.replicas: expected an integer, got "two"',
        "catalog.toml:4: models.a.profiles[1]: no profile 'nowhere' (there are: #, p)",
        "catalog.toml:5: models.a.aliases[0]: 'b' is the name of a model",
        "catalog.toml:6: models.b.source: is missing",
        "catalog.toml:7: models.b.profiles[0]: no profile 'nowhere' (there are: #, p)",
        "catalog.toml:8: profiles.p: tensor 8 x pipeline 1 = 8 exceeds its 4 GPUs",
        "catalog.toml:12: profiles.p.extra_args[0]: {cache.port} is the port of nothing: no sidecar is called cache",
        "catalog.toml:14: profiles.p.health.misses: expected 1 to 1000, got 0",
        'catalog.toml:15: profiles."#".engine: is missing',
        'catalog.toml:15: profiles."#": cannot be a name: # stands before the number of a shard',
        'catalog.toml:16: profiles."#": unknown key colour',
    ]


def test_nothing_is_told_that_may_only_follow_from_another_mistake() -> None:
    assert mistakes(
        """[models.a]
source = "x"
profiles = [3]
[profiles.p]
engine = "sim"
gpus = 8
tensor_parallel = 8
min_gpu_memory_mib = 80000
extra_args = ["{cache.port}"]
[profiles.p.sidecars.cache]
command = [1]
"""
    ) == [
        "catalog.toml:3: models.a.profiles[0]: expected a text, got 3",
        "catalog.toml:6: profiles.p: unknown key gpus",
        "catalog.toml:11: profiles.p.sidecars.cache.command[0]: expected a text, got 1",
    ]


def model(name: str, *lines: str) -> str:
    return "\n".join(("[profiles.p]\nengine = 'sim'", f"[models.{name}]", "source = 'x'", "profiles = ['p']", *lines))


def profile(*lines: str) -> str:
    return "\n".join(("[profiles.p]", "engine = 'sim'", *lines))


def sidecar(*lines: str, name: str = "s") -> str:
    return profile(f"[profiles.p.sidecars.{name}]", *lines)


ONE: dict[str, str] = {
    "a = [": "catalog.toml:1: not TOML: Invalid value (at the end)",
    "\na = 1\na = 2\n": "catalog.toml:3: not TOML: Cannot overwrite a value (column 6)",
    "a = " + "[" * 5000: "catalog.toml: its tables or lists are nested too deeply",
    "models = 3": "catalog.toml:1: models: expected a table, got 3",
    "[models]\na = 3": "catalog.toml:2: models.a: expected a table, got 3",
    "[[models]]\na = 3": "catalog.toml:1: models: expected a table, got [{'a': 3}]",
    # names
    model('"a\\u001b"'): 'catalog.toml:3: models."a\\u001b": cannot be a name: it is empty or not printable',
    model('""'): 'catalog.toml:3: models."": cannot be a name: it is empty or not printable',
    model('" a"'): 'catalog.toml:3: models." a": cannot be a name: it begins or ends with a space',
    model('"a#1"'): 'catalog.toml:3: models."a#1": cannot be a name: # stands before the number of a shard',
    model("a" * 201): f"catalog.toml:3: models.{'a' * 201}: cannot be a name: it has 201 characters, at most 200 are "
    "allowed",
    "[profiles.llmgw]\nengine = 'x'": "catalog.toml:1: profiles.llmgw: this name means llmgw itself; choose another",
    '[profiles."a\\nb"]\nengine = "x"': 'catalog.toml:1: profiles."a\\nb": cannot be a name: it is empty or not '
    "printable",
    # models
    "[models.m]\nsource = 'x'\nprofiles = []": "catalog.toml:3: models.m.profiles: expected at least one",
    model("a").replace("['p']", "[\n'p', 'q']"): "catalog.toml:6: models.a.profiles[1]: no profile 'q' (there are: p)",
    model("a").replace("['p']", "['p', 'p']"): "catalog.toml:5: models.a.profiles[1]: 'p' is named twice",
    model("a").replace("'x'", "''"): "catalog.toml:4: models.a.source: is empty",
    model("a") + "\nreplicas = -1": "catalog.toml:6: models.a.replicas: expected 0 to 10000, got -1",
    model("a") + '\nreplicas = "two"': 'catalog.toml:6: models.a.replicas: expected an integer, got "two"',
    model("a") + "\n[models.a.labels]\nteam = 3": "catalog.toml:7: models.a.labels.team: expected a text, got 3",
    model("a")
    + "\n[models.a.labels]\n'a=b' = 'x'": "catalog.toml:7: models.a.labels.\"a=b\": 'a=b' cannot be the name "
    "of a label",
    model("a")
    + "\nlabels.team = 'a\\tb'".replace("'", '"'): "catalog.toml:6: models.a.labels.team: expected at most 200 "
    "printable characters without comma or space at the ends, got 'a\\tb'",
    # profiles
    profile("nodes = 100000"): "catalog.toml:3: profiles.p.nodes: expected 1 to 1024, got 100000",
    profile("gpus_per_node = -3"): "catalog.toml:3: profiles.p.gpus_per_node: expected 0 to 64, got -3",
    profile(
        "min_gpu_memory_mib = 10"
    ): "catalog.toml:3: profiles.p.min_gpu_memory_mib: asks for 10 MiB of each GPU, but gpus_per_node is 0",
    profile("extra_args = ['']"): "catalog.toml:3: profiles.p.extra_args[0]: an empty argument",
    profile("env = { 'A=B' = '1' }"): "catalog.toml:3: profiles.p.env.\"A=B\": 'A=B' cannot be the name of a variable",
    profile("context_length = 0"): "catalog.toml:1: profiles.p: context length 0 is below 1",
    profile("gpu_memory_fraction = nan"): "catalog.toml:1: profiles.p: GPU memory fraction nan is not in (0, 1]",
    profile(
        "gpus_per_node = 4", "tensor_parallel = 8"
    ): "catalog.toml:1: profiles.p: tensor 8 x pipeline 1 = 8 exceeds its 4 GPUs",
    profile("extra_args = ['a\\u0000']".replace("'", '"')): "catalog.toml:1: profiles.p: a NUL byte cannot stand in an "
    "argument or in the environment",
    # health
    profile(
        "health.probe_every_s = 0"
    ): "catalog.toml:3: profiles.p.health.probe_every_s: expected seconds above 0, at most 604800, got 0",
    profile(
        "[profiles.p.health]", "stall_s = inf"
    ): "catalog.toml:4: profiles.p.health.stall_s: expected seconds above 0, at most 604800, got inf",
    profile("[profiles.p.health]", "misses = 0"): "catalog.toml:4: profiles.p.health.misses: expected 1 to 1000, got 0",
    profile("[profiles.p.health]", "mises = 3"): "catalog.toml:4: profiles.p.health: unknown key mises",
    # sidecars
    sidecar("ready_file = '/x'"): "catalog.toml:3: profiles.p.sidecars.s.command: is missing",
    sidecar("command = []"): "catalog.toml:4: profiles.p.sidecars.s.command: expected at least one",
    sidecar(
        "command = ['x']"
    ): "catalog.toml:3: profiles.p.sidecars.s: cannot tell when it is ready: use {port} in its "
    "command or env, or name a ready_file",
    sidecar("command = ['x', '{port}']", "ready_path = 'health'"): "catalog.toml:5: profiles.p.sidecars.s.ready_path: "
    "expected a path that begins with /, got 'health'",
    sidecar("command = ['x']", "ready_file = '/x'", "ready_path = '/h'"): "catalog.toml:6: profiles.p.sidecars.s."
    "ready_path: it has no port to be asked on: use {port} in its command or env",
    sidecar("command = ['x']", "ready_file = 'x'"): "catalog.toml:5: profiles.p.sidecars.s.ready_file: expected a path "
    "that begins with / or {directory}, got 'x'",
    sidecar(
        "command = ['x', '{port}']", name='"a b"'
    ): "catalog.toml:3: profiles.p.sidecars.\"a b\": 'a b' cannot be the "
    "name of a sidecar: it takes 1 to 63 letters, digits, - and _, a letter or digit first",
    profile("extra_args = ['--cache',", "'http://{cache.port}']"): "catalog.toml:4: profiles.p.extra_args[1]: "
    "{cache.port} is the port of nothing: no sidecar is called cache",
    profile(
        "env.X = '{s.port}'", "sidecars.s = { command = ['x'], ready_file = '/x' }"
    ): "catalog.toml:3: profiles.p.env.X: {s.port} is the port of nothing: that sidecar has no {port}",
    sidecar(
        "command = ['x', '{port}', '{t.port}']"
    ): "catalog.toml:4: profiles.p.sidecars.s.command[2]: {t.port} is the port of nothing: no sidecar is called t",
}


ONE |= {
    model("m", "affinity = 'sticky'"): "catalog.toml:6: models.m.affinity: expected one of "
    '"none", "session", "prefix", got "sticky"',
    model("m", "affinity = 3"): "catalog.toml:6: models.m.affinity: expected a text, got 3",
    model("m", "aliases = ['a', 'a']"): "catalog.toml:6: models.m.aliases[1]: 'a' is named twice",
    model("m", "aliases = ['m']"): "catalog.toml:6: models.m.aliases[0]: 'm' is the name of a model",
    model("m", "aliases = ['a#b']"): "catalog.toml:6: models.m.aliases[0]: "
    "cannot be a name: # stands before the number of a shard",
}


@pytest.mark.parametrize(("text", "said"), ONE.items(), ids=range(len(ONE)))
def test_one_mistake_is_one_line(text: str, said: str) -> None:
    assert mistakes(text) == [said]


@pytest.mark.parametrize(
    "text",
    [
        "",
        profile(),
        profile("""extra_args = ['--hf-overrides', '{"a.port": 1}', '{port}']"""),
        sidecar("command = ['x']", "ready_file = '{directory}/ready'"),
        model("'a/b c'"),
    ],
)
def test_what_is_unusual_is_no_mistake(text: str) -> None:
    assert bool(parse_catalog(text, "catalog.toml").profiles) is bool(text)


def test_an_alias_leads_to_one_model_only() -> None:
    two = model("a", "aliases = ['x', 'b']") + "\n[models.b]\nsource = 'w'\nprofiles = ['p']\naliases = ['x']\n"
    assert [line.partition(": ")[2] for line in mistakes(two)] == [
        "models.a.aliases[0]: 'x' is an alias of 'b' too",
        "models.a.aliases[1]: 'b' is the name of a model",
        "models.b.aliases[0]: 'x' is an alias of 'a' too",
    ]


def test_aliases_and_affinity_are_read() -> None:
    found = parse_catalog(model("m", "aliases = ['org/m 1.5', 'gpt']", "affinity = 'prefix'"), "catalog.toml")
    assert found.models["m"].aliases == ("org/m 1.5", "gpt")
    assert found.models["m"].affinity is Affinity.PREFIX


def test_a_profile_that_no_engine_could_run_may_be_left_to_the_check() -> None:
    text = profile("gpus_per_node = 4", "tensor_parallel = 8")
    assert parse_catalog(text, "catalog.toml", possible=False).profiles["p"].tensor_parallel == 8


def test_the_largest_profile_is_no_mistake() -> None:
    catalog = parse_catalog(profile("nodes = 1024", "gpus_per_node = 64"), "catalog.toml")
    assert catalog.profiles["p"].nodes == 1024


@given(st.text(alphabet="[]{}=.,'\"\\\n #ab1", max_size=40))
def test_any_text_is_a_catalog_or_a_list_of_mistakes(text: str) -> None:
    with suppress(BadFile):
        parse_catalog(text, "catalog.toml")

from types import MappingProxyType

import pytest

from llmgw_core.codec import BadFile, parse_catalog
from llmgw_core.engine import Speculative

GOOD = """
[models."org/qwen3 30b"]
source = "/models/qwen3"
replicas = 2
profiles = ["big", "small"]

[profiles.big]
engine = "vllm"
nodes = 2
gpus_per_node = 8
tensor_parallel = 8
pipeline_parallel = 2
gpu_memory_fraction = 1
prefix_caching = false
speculative = { method = "ngram", draft_tokens = 4 }
extra_args = ["--seed", "1"]
env = { A = "1" }

[profiles.small]
engine = "llamacpp"
"""


def mistakes(text: str) -> list[str]:
    with pytest.raises(BadFile) as refused:
        parse_catalog(text, "catalog.toml")
    return str(refused.value).splitlines()


def test_a_catalog_is_read() -> None:
    catalog = parse_catalog(GOOD, "catalog.toml")
    big = catalog.profiles["big"]
    assert catalog.models["org/qwen3 30b"].profiles == ("big", "small")
    assert (big.parallel.world, big.extra_args, big.env) == (16, ("--seed", "1"), MappingProxyType({"A": "1"}))
    assert big.settings.speculative == Speculative("ngram", 4)
    assert big.settings.prefix_caching is False
    assert catalog.profiles["small"].settings.context_length is None
    assert catalog.model_of("small") == ("org/qwen3 30b", catalog.models["org/qwen3 30b"])


def test_all_mistakes_are_reported_at_once_each_with_its_path() -> None:
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
        extra_args = ["--seed", 1]
        env = { A = 1 }
        speculative = { method = "ngram" }
        gpus = 8
        [profiles.small]
        nodes = true
        [profile.typo]
        """
    )
    assert set(said) == {
        "catalog.toml: models.a.source: expected a text, got 3",
        'catalog.toml: models.a.profiles: expected a list, got "big"',
        'catalog.toml: profiles.big.nodes: expected an integer, got "two"',
        "catalog.toml: profiles.big.tensor_parallel: expected an integer, got 1.5",
        "catalog.toml: profiles.big.trust_remote_code: expected true or false, got 1",
        "catalog.toml: profiles.big.extra_args[1]: expected a text, got 1",
        "catalog.toml: profiles.big.env.A: expected a text, got 1",
        "catalog.toml: profiles.big.speculative.draft_tokens: is missing",
        "catalog.toml: profiles.big: unknown key gpus",
        "catalog.toml: profiles.small.engine: is missing",
        "catalog.toml: profiles.small.nodes: expected an integer, got true",
        "catalog.toml: unknown key profile",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = [", "catalog.toml: not TOML: Invalid value (at end of document)"),
        (
            "[profiles.p]\nengine = 'x'\nnodes = 100000",
            "catalog.toml: profiles.p.nodes: expected 1 to 1024, got 100000",
        ),
        (
            "[profiles.p]\nengine = 'x'\ngpus_per_node = -3",
            "catalog.toml: profiles.p.gpus_per_node: expected 0 to 64, got -3",
        ),
        ("[profiles.p]\nengine = 'x'\nextra_args = ['']", "catalog.toml: profiles.p.extra_args[0]: an empty argument"),
        (
            "[profiles.p]\nengine = 'x'\nenv = { 'A=B' = '1' }",
            "catalog.toml: profiles.p.env: 'A=B' cannot be the name of a variable",
        ),
        ("[models.m]\nsource = 'x'\nprofiles = []", "catalog.toml: models.m.profiles: expected at least one"),
        (
            "[profiles.llmgw]\nengine = 'x'",
            "catalog.toml: profiles.llmgw: this name means llmgw itself; choose another",
        ),
        (
            "[profiles.\"a\\u001b\"]\nengine = 'x'",
            "catalog.toml: profiles: 'a\\x1b' cannot be a name: it is empty or not printable",
        ),
        ("models = 3", "catalog.toml: models: expected a table, got 3"),
        ("[models]\na = 3", "catalog.toml: models.a: expected a table, got 3"),
        (
            "[models.a]\nsource = 'x'\nprofiles = ['p']\n[profiles.q]\nengine = 'vllm'",
            "catalog.toml: models.a.profiles: no profile 'p' (there are: q)",
        ),
    ],
)
def test_one_mistake_is_one_line(text: str, said: str) -> None:
    assert mistakes(text) == [said]

"""The passport is a promise: canonical text, every older schema read, a newer one refused by name, damage named."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbudget.core.errors import BundleError
from onbudget.core.metadata import SCHEMA, Curve, Metadata, Sample
from onbudget.core.recipe import Recipe

FULL = Metadata(
    task="classify",
    field="tiles",
    labels=("wasser", "Wäldchen", "町"),
    recipe=Recipe("picture", (8, 8, 3), resize="stretch", size=(8, 8), scale=1 / 255, mean=(0.5, 0.25, 0.1)),
    activation="softmax",
    output="probabilities",
    params=1234,
    unbatchable="rows mix",
    source_sha256="ab" * 32,
    exporter={"torch": "2.13.0", "name": "dynamo", "opset": 18},
    parity={"fused": {"worst": 1e-7, "rows": [1, 3]}},
    samples=(Sample("AAEC", (0.25, 0.75)),),
    made_by="onbudget 0.1.0",
    cost=Curve(((1, 0.0004), (16, 0.005)), "0123456789abcdef"),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def test_the_text_begins_with_its_schema_and_is_canonical() -> None:
    """One line, schema first, keys of free dictionaries sorted: equal passports are equal bytes."""
    text = FULL.to_json()
    assert text.startswith('{"schema":1,"task":"classify","field":"tiles",')
    other = dataclasses.replace(FULL, exporter=dict(reversed(FULL.exporter.items())))
    assert other.to_json() == text
    assert "\n" not in text
    assert "Wäldchen" in text


@pytest.mark.parametrize("told", [FULL, Metadata()])
def test_a_passport_reads_back_equal(told: Metadata) -> None:
    """Every field, and every default."""
    assert Metadata.from_json(told.to_json()) == told


@given(
    st.text(min_size=1),
    st.lists(st.text()),
    st.dictionaries(st.text(), json_values, max_size=3),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
)
def test_any_text_and_any_numbers_survive(
    name: str, labels: list[str], facts: dict[str, Any], row: list[float]
) -> None:
    """Quotes, newlines, other scripts, surrogate-free text, floats to the bit."""
    told = Metadata(field=name, labels=tuple(labels), parity=facts, samples=(Sample("", tuple(row)),))
    assert Metadata.from_json(told.to_json()) == told


def test_keys_of_a_later_version_of_the_same_schema_are_ignored() -> None:
    """The schema grows only when an old reader would misunderstand; anything else may come along."""
    data = {**json.loads(FULL.to_json()), "colour_of_the_cover": "blue"}
    assert Metadata.from_json(json.dumps(data)) == FULL


def test_a_schema_alone_is_a_passport() -> None:
    """Every key has a default."""
    assert Metadata.from_json('{"schema": 1}') == Metadata()


def test_a_newer_schema_is_refused_by_name() -> None:
    """The message has both numbers, who wrote it, and what to do."""
    text = json.dumps({"schema": SCHEMA + 1, "made_by": "onbudget 9.0"})
    with pytest.raises(BundleError, match=r"schema 2, written by onbudget 9\.0; .* up to 1\. Install a newer onbudget"):
        Metadata.from_json(text)


def test_a_step_that_this_version_does_not_know_is_refused() -> None:
    """A recipe with an unknown key would preprocess wrongly if the key were ignored."""
    data = json.loads(FULL.to_json())
    data["recipe"]["gamma"] = 2.2
    with pytest.raises(BundleError, match="newer than this onbudget: recipe: unknown key 'gamma'"):
        Metadata.from_json(json.dumps(data))


def test_a_passport_without_a_cost_is_what_it_was() -> None:
    """The key is optional: the text of a file that carries none does not change, and null is none."""
    assert '"cost"' not in Metadata().to_json()
    assert Metadata.from_json('{"schema": 1, "cost": null}') == Metadata()


DAMAGE = {
    '{"schema": 1, "cost": 1}': "cost must be an object",
    '{"schema": 1, "cost": {}}': "cost: a curve's machine must be text",
    '{"schema": 1, "cost": {"machine": "m"}}': "cost: a cost's points must be a list",
    '{"schema": 1, "cost": {"machine": "m", "points": []}}': "cost: a cost needs at least one measured point",
    '{"schema": 1, "cost": {"machine": "m", "points": [[2, 1], [1, 1]]}}': "in ascending order",
    '{"schema": 1, "cost": {"machine": "m", "points": [[1, 1e999]]}}': "batch 1 at inf s is not a measured cost",
    '{"schema": 1, "cost": {"machine": "m", "points": [[1000000000, 1]]}}': "batches must be from 1 to 1024",
    '{"schema": 1, "cost": {"machine": "m", "points": [[1, 1' + "0" * 400 + "]]}}": "seconds must be numbers",
    "": "not JSON",
    "{": "not JSON",
    "[1]": "not a JSON object",
    "{}": "schema must be a whole number, not None",
    '{"schema": "1"}': "schema must be a whole number",
    '{"schema": true}': "schema must be a whole number",
    '{"schema": 0}': "schema must be a whole number",
    '{"schema": 1, "task": "detect"}': "task must be one of classify, multilabel, tensors, not 'detect'",
    '{"schema": 1, "field": ""}': "field must be text that is not empty",
    '{"schema": 1, "labels": "ab"}': "labels must be a list of texts",
    '{"schema": 1, "labels": [1]}': "labels must be a list of texts",
    '{"schema": 1, "recipe": []}': "recipe must be an object",
    '{"schema": 1, "activation": ["softmax"]}': "activation must be one of",
    '{"schema": 1, "params": -1}': "params must be a count or null",
    '{"schema": 1, "params": 1.5}': "params must be a count or null",
    '{"schema": 1, "params": true}': "params must be a count or null",
    '{"schema": 1, "exporter": []}': "exporter must be an object",
    '{"schema": 1, "samples": {}}': "samples must be a list",
    '{"schema": 1, "samples": [3]}': r"samples\[0\] must be an object",
    '{"schema": 1, "samples": [{"item": 3}]}': r"samples\[0\].item must be base64 text",
    '{"schema": 1, "samples": [{"item": "", "output": [null]}]}': r"samples\[0\].output must be a list of numbers",
    '{"schema": 1, "samples": [{"item": "", "output": [NaN]}]}': "NaN is not a JSON number",
    '{"schema": 1, "unbatchable": false}': "unbatchable must be text",
    "[" * 100_000: "not JSON",
}


@pytest.mark.parametrize(("text", "wanted"), DAMAGE.items(), ids=[key[:40] for key in DAMAGE])
def test_damage_is_named(text: str, wanted: str) -> None:
    """Never a traceback of the reader's own, always the key and what it should be."""
    with pytest.raises(BundleError, match=f"the bundle's metadata is damaged: .*{wanted}|{wanted}"):
        Metadata.from_json(text)


def test_the_page_on_bundles_names_every_field() -> None:
    """docs/concepts/bundle.md describes each key of the metadata and each key of a recipe, and no other."""
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "bundle.md").read_text(encoding="utf-8")
    recipes, metadata = page.split("## Recipes")[1].split("## The metadata, field by field")

    def keys(part: str) -> set[str]:
        first_cells = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
        return {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}

    assert keys(recipes) == {f.name for f in dataclasses.fields(Recipe)}
    assert keys(metadata) == {"schema", *(f.name for f in dataclasses.fields(Metadata))}

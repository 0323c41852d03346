"""Requests to a collection, settings of its server, and the merge of hits: all without a running server."""

import json
import re
from pathlib import Path

import pytest

from index.serve.app import SearchApp
from index.serve.deploy import ServeConfig, check_same_scoring
from index.serve.gateway import Gateway, merge_hits
from index.serve.request_checks import MAX_QUESTIONS, parse_request
from ragqa.errors import BadInput, Mismatch
from ragqa.retrieval import remote
from ragqa.retrieval.base import Scoring
from ragqa.retrieval.registry import RetrieverKind


def test_equal_scores_keep_the_order_of_the_shards() -> None:
    one = [{"id": 0, "score": 2.0}, {"id": 1, "score": 1.0}, {"id": 3, "score": 1.0}]
    two = [{"id": 0, "score": 2.0}, {"id": 5, "score": 1.0}]
    assert [hit["id"] for hit in merge_hits([(0, one), (4, two)], 9)] == [0, 4, 1, 3, 9]
    assert [hit["id"] for hit in merge_hits([(0, one), (4, two)], 2)] == [0, 4]
    assert merge_hits([(0, []), (4, [])], 2) == []


def test_a_request_is_parsed_with_its_defaults() -> None:
    assert parse_request(b'{"questions": ["  a\\n b? "]}', 50) == (["a b?"], 10)
    assert parse_request(b'{"questions": ["a", "b"], "k": 50}', 50) == (["a", "b"], 50)


def test_the_documents_list_every_route() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "index.md").read_text("utf-8")
    routes = set(SearchApp(Gateway([], 1.0), 10)._routes)
    assert set(re.findall(r"(?m)^\| `([A-Z]+) (/[\w/-]+)`", guide)) == routes
    assert set(re.findall(r"(?m)^    ([A-Z]+) +(/[\w/-]+)", str(remote.__doc__))) == routes


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "must be a list of texts"),
        (b'{"questions": "a"}', "must be a list of texts"),
        (b'{"questions": []}', "must be a list of texts"),
        (b'{"questions": ["a", 1]}', "must be a list of texts"),
        (b'{"questions": ["a", " "]}', "the question is empty"),
        (b'{"questions": ["a"], "k": 0}', "k must be a whole number from 1 to 50"),
        (b'{"questions": ["a"], "k": 51}', "k must be a whole number from 1 to 50"),
        (b'{"questions": ["a"], "k": true}', "k must be a whole number from 1 to 50"),
        (b'{"questions": ["a"], "k": 1.5}', "k must be a whole number from 1 to 50"),
        (json.dumps({"questions": ["a"] * (MAX_QUESTIONS + 1)}).encode(), f"at most {MAX_QUESTIONS} can be asked"),
        (b" " * (1 << 25), "at most 16777216 are read"),
    ],
)
def test_bad_requests_are_one_clear_line(body: bytes, line: str) -> None:
    with pytest.raises(BadInput, match=line) as raised:
        parse_request(body, 50)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"shards": ()}, "name at least one index"),
        ({"retriever": "bm52"}, "choose one of " + ", ".join(RetrieverKind)),
        ({"timeout": 0.0, "port": 0}, r"port = 0: .*; timeout = 0"),
    ],
)
def test_all_wrong_settings_are_reported_together(wrong: dict, line: str) -> None:
    with pytest.raises(BadInput, match=line):
        ServeConfig(**{"shards": (Path("a"),), **wrong})


def test_shards_are_named_by_folder_or_by_path_if_folders_share_a_name() -> None:
    assert ServeConfig(shards=(Path("x/a.index"), Path("/y/b.index"))).names == ["a.index", "b.index"]
    assert ServeConfig(shards=(Path("/x/a"), Path("/y/a"))).names == ["/x/a", "/y/a"]


def test_shards_whose_scores_do_not_compare_are_named() -> None:
    one, other = Scoring("hybrid", "1234", "tantivy"), Scoring("hybrid", "5678", "tantivy")
    check_same_scoring({"a": one, "b": one})
    with pytest.raises(Mismatch, match=r"do not have one encoder \(a, b: 1234; c: 5678\): index them alike"):
        check_same_scoring({"a": one, "b": one, "c": other})
    with pytest.raises(
        Mismatch, match=r"do not have one retriever \(a: hybrid; d: bm25\): choose one with --retriever"
    ):
        check_same_scoring({"a": one, "d": Scoring("bm25", None, "tantivy")})
    with pytest.raises(Mismatch, match="do not have one engine"):
        check_same_scoring({"a": one, "d": Scoring("hybrid", "1234", "lucene")})

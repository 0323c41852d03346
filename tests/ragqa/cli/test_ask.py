"""The command line end to end over a small folder: answers, exits, formats, bad input."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import run

import ragqa
from ragqa import artefacts
from ragqa.artefacts.paths import get_weights_dir
from ragqa.cli import ask, main
from ragqa.errors import ArtefactError, BadInput, Mismatch
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.pipeline import Pipeline, clean_question
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import RetrieverKind
from ragqa.types import Alternative, Answer

QUESTION = "Who built Skarvik Lighthouse?"


@pytest.fixture
def index_copy(index: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(index, tmp_path / "copy.index"))


def test_json_positions_locate_source_and_answer_in_the_file(index: Path, folder: Path, capsys) -> None:
    status, out, _ = run("ask", QUESTION, "--index", str(index), "--json", "--min-confidence", "0", capsys=capsys)
    row = json.loads(out)
    assert status == 0
    assert row["question"] == QUESTION
    assert row["answer"] == "Ada Holm"
    assert 0 <= row["confidence"] <= 1
    source = row["sources"][0]
    assert source["title"] == "Skarvik Lighthouse"
    text = Path(source["path"]).read_text()
    assert Path(source["path"]) == folder / "lighthouse.md"
    assert text[source["start"] : source["end"]] == source["text"]
    assert text[source["answer_start"] : source["answer_end"]] == "Ada Holm"


def test_an_answer_is_printed_with_its_marked_source(index: Path, capsys) -> None:
    status, out, err = run("ask", QUESTION, "--index", str(index), "--min-confidence", "0", capsys=capsys)
    assert status == 0 and err == ""
    assert out.startswith("Ada Holm   (confidence ")
    assert "by the engineer **Ada Holm**. The lighthouse" in " ".join(out.split())
    assert "lighthouse.md, line 3\n" in out


def test_alternatives_below_half_a_percent_are_not_shown() -> None:
    others = (Alternative("blue", 0.25), Alternative("green", 0.004))
    shown = ask.format_text(Answer("which?", "red", 1.0, 0.7, (), others))
    assert shown == "red   (confidence 0.70)\n\nRunners-up: blue (0.25)"


def test_a_cut_question_has_a_note(index: Path, capsys) -> None:
    long = f"{QUESTION} {'Please tell me. ' * 30}"
    _, out, _ = run("ask", long, "--index", str(index), "--min-confidence", "0", capsys=capsys)
    assert re.search(r"\n\nNote: the question has \d+ wordpieces; its first 64 were read\.\n$", out)
    for question, has_note in ((long, True), (QUESTION, False)):
        _, out, _ = run("ask", question, "--index", str(index), "--json", "--min-confidence", "0", capsys=capsys)
        assert bool(json.loads(out)["note"]) is has_note


def test_a_declined_question_exits_with_status_1(index: Path, capsys) -> None:
    arguments = ("ask", QUESTION, "--index", str(index), "--min-confidence", "1")
    status, out, _ = run(*arguments, capsys=capsys)
    assert status == 1
    why = r"the best has confidence 0\.\d\d, below 1\.00"
    guess = r"Best guess: Ada Holm \(0\.\d\d\)"
    assert re.match(rf"No answer in these documents: {why}\.\n\n{guess}\n\nThe nearest passages:\n\n\[1\]", out)
    status, out, _ = run(*arguments, "--json", capsys=capsys)
    row = json.loads(out)
    assert status == 1
    assert row["answer"] is None and re.fullmatch(why, row["reason"])
    assert row["alternatives"][0]["answer"] == "Ada Holm"
    nearest = open_retriever(index).search([QUESTION], 10)[0]
    assert [source["text"] for source in row["sources"]] == [hit.passage.text for hit in nearest]
    assert {source["answer_start"] for source in row["sources"]} == {None}


def test_python_and_the_command_decline_below_the_same_threshold(index: Path, capsys) -> None:
    pipeline = Pipeline.load(index)
    nonsense = "Which cheese did the comet eat in 1432?"
    sure = pipeline.ask(nonsense, min_confidence=0)
    assert sure.text is not None and sure.confidence < pipeline.reader.threshold
    declined = pipeline.ask(nonsense)
    assert declined.text is None and declined == pipeline.ask(nonsense, min_confidence=pipeline.reader.threshold)
    assert list(pipeline.stream(nonsense)) == [declined]
    status, out, _ = run("ask", nonsense, "--index", str(index), "--json", capsys=capsys)
    assert (status, json.loads(out)) == (1, declined.to_dict())


def test_a_question_without_a_command_is_asked(index: Path, capsys) -> None:
    status, out, _ = run(QUESTION, "--index", str(index), "--min-confidence", "0", capsys=capsys)
    assert status == 0 and out.startswith("Ada Holm")


def test_public_names_are_listed_and_imported_when_used() -> None:
    code = "import sys, ragqa; print(dir(ragqa)); assert 'ragqa.pipeline' not in sys.modules; ragqa.Pipeline"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"Pipeline", "Answer", "Source", "Passage", "RagqaError", "BadInput"} <= set(eval(done.stdout))


def test_index_and_pipeline_exclude_each_other(index: Path, capsys) -> None:
    status, out, error = run("ask", QUESTION, "--index", str(index), "--pipeline", str(index), capsys=capsys)
    assert (status, out) == (2, "") and "name the same thing, give one of them" in error


def test_version_is_shown(capsys) -> None:
    assert run("--version", capsys=capsys) == (0, f"ragqa {ragqa.__version__}\n", "")


def test_the_prompt_answers_until_exit(index: Path, capsys, monkeypatch) -> None:
    typed = iter([QUESTION, "", "\x07", "help", "Who discovered Comet Varga?", "Where?", " EXIT "])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    ask.prompt(Pipeline.load(index), 0.0, ask.format_text)
    printed = capsys.readouterr()
    assert "Ada Holm   (confidence" in printed.out
    assert "Ilona Varga   (confidence" in printed.out
    assert ask.HELP in printed.out
    assert "Asked as: Where: Ilona Varga discovered Comet Varga?" in printed.out
    assert printed.err.endswith("ragqa: the question is empty: ask something\n")
    assert list(typed) == []


def test_at_most_k_passages_are_read(index: Path) -> None:
    pipeline = Pipeline.load(index)
    assert len(pipeline.ask(QUESTION, k=1, min_confidence=1.0).sources) == 1
    assert len(pipeline.ask(QUESTION, k=2, min_confidence=1.0).sources) == 2
    assert len(pipeline.ask(QUESTION, k=2**40, min_confidence=1.0).sources) == 3
    with pytest.raises(BadInput, match="a whole number of at least 1"):
        pipeline.ask(QUESTION, k=0)


def test_fusion_is_saved_with_the_pipeline(index: Path, tmp_path: Path) -> None:
    weighted, ranks = Pipeline.load(index), Pipeline.load(index, fusion="rrf")
    best = [p.retriever.search([QUESTION], 1)[0][0].score for p in (weighted, ranks)]
    assert best[1] == pytest.approx(2 / 61)  # first in both lists
    assert best[0] > 0.3
    ranks.save(tmp_path / "p")
    assert Pipeline.load(tmp_path / "p").retriever.search([QUESTION], 1)[0][0].score == pytest.approx(2 / 61)
    with pytest.raises(BadInput, match="nothing to fuse"):
        Pipeline.load(index, retriever="bm25", fusion="rrf")


@pytest.mark.parametrize(
    ("shell", "status", "message"),
    [
        ("{ragqa} ask 'who?' --index {index} > /dev/full", 2, "ragqa: "),
        ("{ragqa} ask 'who?' --index {index} <&- > /dev/null; {ragqa} ask --index {index} <&-", 2, "no standard input"),
        ("{ragqa} ask 'who?' --index {index} >&-", 2, "standard output is closed"),
        ("{ragqa} ask 'who?' --index $(printf 'x%.0s' $(seq 400))", 2, "File name too long"),
        ("set -o pipefail; {ragqa} ask 'who?' --index {index} --min-confidence 0 | true", 141, ""),
    ],
)
def test_closed_streams_and_full_disks_are_reported(index: Path, shell: str, status: int, message: str) -> None:
    command = shell.format(ragqa=f"{sys.executable} -m ragqa", index=index)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("retriever", RetrieverKind)
def test_every_retriever_finds_the_answer(index: Path, retriever: str) -> None:
    assert Pipeline.load(index, retriever=retriever).ask(QUESTION).text == "Ada Holm"


def test_a_batch_answers_like_single_questions(index: Path) -> None:
    pipeline = Pipeline.load(index)
    questions = [QUESTION, "How tall is the lighthouse?", "Where was the comet found?"]
    assert pipeline.ask(questions) == [pipeline.ask(question) for question in questions]
    assert pipeline.ask([]) == []


def test_a_saved_pipeline_answers_alike_after_loading(index: Path, tmp_path: Path) -> None:
    pipeline = Pipeline.load(index, retriever="bm25", k=2)
    pipeline.save(tmp_path / "p")
    reloaded = Pipeline.load(tmp_path / "p")
    assert reloaded.k == 2
    assert reloaded.ask(QUESTION) == pipeline.ask(QUESTION)


def test_a_directory_with_a_pipeline_and_its_parts_can_be_moved(index: Path, tmp_path: Path, monkeypatch) -> None:
    """Paths inside the directory are saved relative to the pipeline."""
    here, there = tmp_path / "here", tmp_path / "elsewhere"
    shutil.copytree(index, here / "index")
    shutil.copytree(get_weights_dir() / "encoder", here / "encoder")
    monkeypatch.chdir(here)
    Pipeline.load("index", encoder="encoder").save("pipeline")
    saved = json.loads((here / "pipeline" / "pipeline.json").read_text())
    assert (saved["index"], saved["encoder"], saved["reader"]) == ("./../index", "./../encoder", None)
    monkeypatch.chdir(tmp_path)
    here.rename(there)
    reloaded = Pipeline.load(there / "pipeline")
    assert reloaded.ask(QUESTION).text == "Ada Holm"
    (there / "encoder" / "manifest.json").unlink()
    with pytest.raises(ArtefactError, match="elsewhere"):
        Pipeline.load(there / "pipeline")


def test_a_document_cannot_steer_the_terminal(tmp_path: Path, capsys) -> None:
    (tmp_path / "evil.txt").write_text("The secret colour of \x1b[31mthe door\x07 is crimson.\n")
    build_index([tmp_path / "evil.txt"], tmp_path / "evil.index")
    arguments = (
        "ask",
        "What colour is the door?",
        "--index",
        str(tmp_path / "evil.index"),
        "--min-confidence",
        "0",
    )
    _, out, _ = run(*arguments, capsys=capsys)
    assert "crimson" in out and "\x1b" not in out and "\x07" not in out


def test_a_title_cannot_steer_the_terminal(tmp_path: Path, capsys) -> None:
    record = {"id": "a\x1b[31m", "title": "t\x1b[2J", "text": "The secret colour is \ue000crimson\ue001."}
    (tmp_path / "b\x1b[2J.jsonl").write_text(json.dumps(record))
    build_index([tmp_path / "b\x1b[2J.jsonl"], tmp_path / "e.index")
    _, out, _ = run("ask", "What is the secret colour?", "--index", str(tmp_path / "e.index"), capsys=capsys)
    assert "\x1b" not in out
    assert r"document a\x1b[31m" in out


def test_a_pipeline_over_a_rebuilt_index_is_refused(
    index: Path, index_copy: Path, folder: Path, tmp_path: Path
) -> None:
    Pipeline.load(index_copy).save(tmp_path / "p")
    Pipeline.load(tmp_path / "p")
    build_index([folder / "bakery.txt"], index_copy)
    with pytest.raises(Mismatch, match=r"index of .* is not the index it was saved with"):
        Pipeline.load(tmp_path / "p")


BAD_QUESTIONS = ["", "   ", "\t\n", "\x00\x01\x07"]


@pytest.mark.parametrize("question", BAD_QUESTIONS)
def test_an_empty_question_is_reported_in_one_line(index: Path, question: str, capsys) -> None:
    status, out, err = run("ask", question, "--index", str(index), capsys=capsys)
    assert (status, out) == (2, "")
    assert err == "ragqa: the question is empty: ask something\n"


@pytest.mark.parametrize(
    "question",
    ["why? " * 200_000, "\x1b[2J who built\x00 it? \udcff", '")(*&^%$#@! OR AND NOT title:"', "ä" * 5000],
)
def test_strange_questions_are_answered_or_refused(index: Path, question: str) -> None:
    answer = Pipeline.load(index).ask(question)
    assert 0 <= answer.confidence <= 1


def test_questions_are_cleaned() -> None:
    assert clean_question("  who\x00 built\n it? ") == "who built it?"
    with pytest.raises(BadInput):
        clean_question("\x07")


def test_a_directory_that_is_not_an_index_is_named(tmp_path: Path, folder: Path, capsys) -> None:
    command = f"make an index of it: ragqa index {folder} --out {folder.stem}.index"
    for path, message in ((tmp_path / "nowhere", "does not exist"), (folder, command)):
        status, out, err = run("ask", QUESTION, "--index", str(path), capsys=capsys)
        assert (status, out) == (2, "")
        assert message in err and err.count("\n") == 1


def list_files(index: Path) -> list[str]:
    return sorted(p.relative_to(index).as_posix() for p in index.rglob("*") if p.is_file())


def test_every_damaged_file_is_named(index: Path, tmp_path: Path, capsys) -> None:
    for name in list_files(index):
        if name.endswith(".lock"):
            continue
        index_copy = Path(shutil.copytree(index, tmp_path / "damaged.index"))
        content = (index_copy / name).read_bytes()
        (index_copy / name).write_bytes(content[: len(content) // 2])
        status, out, err = run("ask", QUESTION, "--index", str(index_copy), capsys=capsys)
        assert (status, out) == (2, ""), name
        assert name in err and err.count("\n") == 1
        shutil.rmtree(index_copy)


def test_an_edited_file_is_detected_by_its_checksum(index_copy: Path, capsys) -> None:
    file = index_copy / "dense" / "vectors.npy"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    status, _, err = run("ask", QUESTION, "--index", str(index_copy), capsys=capsys)
    assert status == 2 and "vectors.npy is damaged: its checksum" in err


def test_another_encoder_is_refused(index_copy: Path) -> None:
    manifest = artefacts.read_manifest(index_copy, "index")
    artefacts.write_manifest(index_copy, "index", manifest.config, manifest.parents | {"encoder": "0" * 16})
    with pytest.raises(Mismatch, match="another encoder"):
        Pipeline.load(index_copy)


def test_a_missing_gpu_is_reported(index: Path, folder: Path, tmp_path: Path, capsys) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    status, _, err = run("ask", QUESTION, "--index", str(index), "--device", "cuda", capsys=capsys)
    assert status == 2
    assert "cuda" in err
    assert err.count("\n") == 1
    with pytest.raises(BadInput, match="exported for the CPU"):
        build_index([folder], tmp_path / "g", IndexConfig(device="cuda"))


def test_dense_search_needs_an_index_with_vectors(folder: Path, tmp_path: Path) -> None:
    build_index([folder], tmp_path / "b.index", IndexConfig(retriever="bm25"))
    assert Pipeline.load(tmp_path / "b.index").ask(QUESTION).text == "Ada Holm"
    with pytest.raises(Mismatch, match="cannot do dense"):
        Pipeline.load(tmp_path / "b.index", retriever="dense")


def test_unknown_choices_are_named(index: Path, folder: Path, tmp_path: Path, capsys) -> None:
    status, _, err = run("ask", "x?", "--index", str(index), "--retriever", "magic", capsys=capsys)
    assert status == 2 and f"choose one of {', '.join(RetrieverKind)}" in err
    arguments = ("index", str(folder), "--out", str(tmp_path / "x"), "--kind", "pq", "--retriever", "none")
    status, _, err = run(*arguments, capsys=capsys)
    assert status == 2 and "retriever 'none'" in err and "kind 'pq'" in err
    assert not (tmp_path / "x").exists()


def test_a_bug_exits_with_its_own_status(index: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(Pipeline, "ask", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(sys, "argv", ["ragqa", "ask", QUESTION, "--index", str(index)])
    with pytest.raises(SystemExit) as stop:
        main.main()
    assert stop.value.code == main.BUG
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_asking_leaves_no_telemetry(index: Path, tmp_path: Path) -> None:
    """ONNX Runtime would keep its telemetry queue in the cache directory."""
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    environment.update(XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path))
    command = [sys.executable, "-m", "ragqa", "ask", QUESTION, "--index", str(index)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "Ada Holm" in done.stdout, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["ragqa"]


def test_asking_loads_no_torch(index: Path) -> None:
    """Answering with the packaged models must stay light."""
    code = (
        "import sys; from ragqa import Pipeline;"
        f"a = Pipeline.load({str(index)!r}).ask({QUESTION!r});"
        "assert a.text == 'Ada Holm', a;"
        "bad = {'torch', 'transformers', 'faiss', 'ray', 'datasets'} & set(sys.modules); assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("question", "options", "message"),
    [
        (None, {}, "a question must be text, not None"),
        (["Who built it?", 7], {}, "a question must be text, not 7"),
        ("Who built it?", {"min_confidence": float("nan")}, "min_confidence = nan: it must be between 0 and 1"),
        ("Who built it?", {"min_confidence": 1.5}, "min_confidence = 1.5: it must be between 0 and 1"),
        ("Who built it?", {"k": 0}, "k = 0: it must be a whole number of at least 1"),
    ],
)
def test_invalid_arguments_of_ask_are_refused(
    index: Path, question: object, options: dict[str, float], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        Pipeline.load(index).ask(question, **options)  # type: ignore[call-overload]


def test_unknown_reader_names_are_refused(index: Path) -> None:
    with pytest.raises(BadInput, match=r"readers=\{'spans': …\}: the names are span, rag-token"):
        Pipeline.load(index, readers={"spans": "a"})

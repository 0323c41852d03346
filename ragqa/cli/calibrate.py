"""``ragqa calibrate``: set the confidence threshold of an index."""

from pathlib import Path
from typing import Annotated

import typer

from ragqa.cli.options import FiguresAsJsonOption
from ragqa.cli.output import DECLINED, print_error, print_result
from ragqa.risk_control.settings import COUNT, MISSING, RISK


def calibrate(
    index: Annotated[Path, typer.Argument(help="Index or pipeline directory; the threshold is stored with the index.")],
    questions: Annotated[
        Path | None,
        typer.Option(help="File of questions: JSON lines, DPR's TSV or SQuAD.  [default: made from the documents]"),
    ] = None,
    risk: Annotated[float, typer.Option(help="Largest expected share of wrong answers among all questions.")] = RISK,
    count: Annotated[int, typer.Option(min=1, help="Number of questions to make.")] = COUNT,
    missing: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Assumed share of questions that the documents do not answer.  "
            f"[default: {MISSING}; 0 with a file that has questions without an answer]",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the questions that are made.")] = 0,
    reader: Annotated[str | None, typer.Option(help="Reader to calibrate for, as in `ragqa ask`.")] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Number of passages to read, as in `ragqa ask`.")] = None,
    retriever: Annotated[str | None, typer.Option(help="Retriever to use, as in `ragqa ask`.")] = None,
    device: Annotated[str, typer.Option(help="Device of index search and torch models: cpu or cuda.")] = "cpu",
    as_json: FiguresAsJsonOption = False,
) -> None:
    """Set the confidence below which questions to an index are declined.

    If new questions are like those of the calibration, at most the share --risk is expected to get a wrong answer.
    """
    from ragqa.pipeline import Pipeline
    from ragqa.progress import Bars
    from ragqa.risk_control.run import set_threshold
    from ragqa.risk_control.settings import RiskSettings
    from ragqa.risk_control.summary import format_report

    settings = RiskSettings(questions=questions, count=count, risk=risk, missing=missing, seed=seed)
    pipeline = Pipeline.load(index, reader=reader, k=k, retriever=retriever, device=device)
    report = set_threshold(pipeline, settings, progress=Bars())
    print_result(format_report(report, index, as_json=as_json))
    if report.threshold is None:
        is_answered = report.curve[0].answered > 0
        reason = "the most confident answers are wrong too often" if is_answered else "no question got an answer"
        print_error(f"no threshold has a risk of {risk}: {reason}; nothing was stored")
        raise typer.Exit(DECLINED)

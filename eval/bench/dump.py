"""How fast a Wikipedia dump is read, on one core, over wikitext made around real prose.

    python -m eval.bench.dump --articles AA.tar.xz --work DIR --out docs/measurements/dump.json

The prose is cut into pages of the mean length of English Wikipedia's articles and given its kinds of markup, about as
dense; between the articles stand redirects and pages of other namespaces. Seconds are those of the processor.
"""

import argparse
import bz2
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from eval.bench.record import record
from ragqa.corpus.formats.mediawiki.text import plain_text
from ragqa.corpus.sources import read_documents

CHARACTERS = 4200
"""Of text in a page: 670 words."""
HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
<siteinfo><namespaces><namespace key="0" /><namespace key="6">File</namespace></namespaces></siteinfo>
"""
CITATION = (
    "<ref>{{cite web |url=https://www.example.org/page.html |title=A report on the subject |last=Smith |first=John "
    "|date=12 March 2010 |website=Example |access-date=3 June 2015 |archive-url=https://web.archive.org/web/2015/x "
    "|archive-date=4 June 2015 |url-status=live}}</ref>"
)
NOTES = (CITATION, '<ref name="b" />', "{{sfn|Smith|2004|p=1}}")
TABLE = '{| class="wikitable"\n! Year !! Title\n' + "|-\n| 1999 || ''[[Film]]'' {{yes}}\n" * 12 + "|}"
BOX = "{{Infobox person\n| image = a.jpg\n" + "| name = a [[link]] <br /> {{small|x}}\n" * 14 + "}}\n"
END = "\n== References ==\n{{Reflist}}\n{{Authority control}}\n" + "[[Category:Some things]]\n" * 8


def marked_up(text: str, rng: random.Random) -> str:
    """A page of wikitext that shows ``text``."""
    words = re.split(r"(?<= )", text)
    for at, word in enumerate(words):
        bare, chance = word.strip(" .,()[]"), rng.random()
        if bare and chance < 0.06:
            words[at] = word.replace(bare, f"[[{bare}]]", 1)
        elif bare and chance < 0.09:
            words[at] = word.replace(bare, f"[[{bare} (thing)|{bare}]]", 1)
        elif bare and chance < 0.10:
            words[at] = rng.choice((f"''{word.strip()}'' ", "{{convert|5|km|mi|abbr=on}} ", f"{word.strip()}&nbsp;"))
        elif word.endswith(". ") and chance < 0.55:
            words[at] = f"{word.rstrip()}{rng.choice(NOTES)} "
    pieces = [BOX, "".join(words), "[[File:a.jpg|thumb|A picture of [[something]]]]"]
    return "\n\n".join((*pieces, *([TABLE] if rng.random() < 0.3 else []), END))


def page(number: int, text: str, namespace: int = 0, redirect: str = "") -> str:
    return (
        f"<page><title>Page {number}</title><ns>{namespace}</ns><id>{number}</id>{redirect}<revision><id>{number}</id>"
        "<timestamp>2020-01-01T00:00:00Z</timestamp><contributor><username>A</username><id>7</id></contributor>"
        f'<model>wikitext</model><text bytes="1" xml:space="preserve">{escape(text)}</text></revision></page>\n'
    )


def texts(articles: Path, count: int) -> Iterator[str]:
    """``count`` texts of CHARACTERS characters."""
    documents = (d.text[d.body :] for d in read_documents([articles]))
    cuts = (text[at : at + CHARACTERS] for text in documents for at in range(0, len(text) - CHARACTERS, CHARACTERS))
    return islice(cuts, count)


def write_dump(path: Path, pages: list[str]) -> None:
    """A compressed dump with 3 redirects and 2 pages of other namespaces to 2 articles."""
    with bz2.open(path, "wt", encoding="utf-8") as file:
        file.write(HEAD)
        for number, text in enumerate(pages):
            file.write(page(6 * number, text))
            file.write(page(6 * number + 1, "Template text. " * 100, namespace=10))
            for other in range(2 + number % 2):
                file.write(page(6 * number + 2 + other, "#REDIRECT [[A]]", redirect='<redirect title="A" />'))
        file.write("</mediawiki>\n")


def measured(path: Path) -> dict[str, Any]:
    """Seconds and memory of reading a dump, in a process of its own."""
    code = (
        "import json, resource, sys, time; from pathlib import Path\n"
        "from ragqa.corpus.sources import CorpusReport, read_documents\n"
        "began, report = time.process_time(), CorpusReport()\n"
        "characters = sum(len(d.text) for d in read_documents([Path(sys.argv[1])], report=report))\n"
        "row = {'articles': report.documents, 'characters': characters, 'seconds': time.process_time() - began}\n"
        "print(json.dumps(row | {'peak_rss_mb': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def rate(pages: list[str], **options: Any) -> float:
    """Megabytes of wikitext that become text in a second."""
    plain_text(pages[0])
    began = time.process_time()
    for text in pages:
        plain_text(text, **options)
    return sum(map(len, pages)) / 1e6 / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--articles", type=Path, required=True, help="prose: whatever `ragqa index` reads")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pages", type=int, default=5000)
    args = parser.parse_args()
    rng = random.Random(0)
    pages = [marked_up(text, rng) for text in texts(args.articles, args.pages)]
    args.work.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"characters_of_wikitext_in_a_page": round(sum(map(len, pages)) / len(pages))}
    for name, some in (("a fifth", pages[: len(pages) // 5]), ("all", pages)):
        path = args.work / "made-pages-articles.xml.bz2"
        write_dump(path, some)
        row = measured(path)
        row |= {"compressed_mb": round(path.stat().st_size / 1e6, 1), "seconds": round(row["seconds"], 2)}
        figures[name] = row | {"articles_per_s": round(row["articles"] / row["seconds"])}
    figures["wikitext_mb_per_s"] = {
        "as it is read": round(rate(pages[:1000]), 2),
        "by the parser alone": round(rate(pages[:200], prepare=False), 2),
    }
    record(args.out, figures, corpus=f"{len(pages)} pages made around prose of {args.articles.name}", questions="none")


if __name__ == "__main__":
    main()

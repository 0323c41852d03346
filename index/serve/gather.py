"""A question to all shards of a collection, their best passages merged; what answers HTTP.

A shard that fails or is too slow is missing from the answer, which names it. It is asked in the background until it
is back, and until then no question waits for it: so a lost shard costs one timeout, not one a question.
"""

import asyncio
import hashlib
import heapq
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

from index.serve.shard import Failure, Found, State
from ragqa.errors import BadInput, RemoteError
from ragqa.pipeline import clean_question
from ragqa.reading.base import DEFAULT_PASSAGES
from ragqa.retrieval.registry import DEFAULT_FUSION, RetrieverKind
from ragqa.retrieval.remote import HEALTH, PROTOCOL, SEARCH, Collection, Part

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

MAX_QUESTIONS = 1024
"""Of a request."""
MAX_BYTES = 16 << 20
"""Of a request."""
TOGETHER = 16
"""Questions of a request that are granted one timeout together; a larger one waits longer."""
_PATIENCE = 10.0
"""Seconds for a lost shard to answer: its replica may just be starting."""
_PAUSES = 0.1, 5.0
"""Shortest and longest wait, in seconds, until a lost shard that answers badly is asked again."""
_FORM = '{"questions": ["Who …?"], "k": 10}'


@dataclass(frozen=True)
class Member:
    """A shard as it was when the collection was put together."""

    name: str
    app: str
    """Ray Serve's application that runs it."""
    state: State
    replicas: int


class _Shard:
    """A shard as seen from here: what is known of it, and whether it is lost."""

    def __init__(self, member: Member) -> None:
        from ray import serve

        self.name, self.known = member.name, member.state
        self.lost: str | None = None
        """Why, in a line."""
        self._handle = serve.get_deployment_handle("Shard", app_name=member.app)
        self._tries = 2 if member.replicas > 1 else 1  # another replica may live where one has died
        self._back: asyncio.Task[None] | None = None

    async def search(self, questions: list[str], k: int, within: float) -> Found | None:
        """What it finds; None where it is lost."""
        answer = await self._ask(within, "search", questions, k)
        if not isinstance(answer, Found):
            return None
        self.known = replace(self.known, rows=answer.rows)
        return answer

    async def state(self, within: float) -> State | None:
        """What it is now; None where it is lost."""
        answer = await self._ask(within, "state")
        if not isinstance(answer, State):
            return None
        self.known = answer
        return answer

    async def _ask(self, within: float, method: str, *arguments: Any) -> Found | State | None:
        if self.lost is not None:
            return None
        answer = await self._call(within, method, *arguments)
        if not isinstance(answer, Failure):
            return answer
        if self.lost is None:
            self.lost = answer.reason
            self._back = asyncio.create_task(self._until_back())
        return None

    async def _until_back(self) -> None:
        pause, longest = _PAUSES
        while isinstance(answer := await self._call(_PATIENCE, "state"), Failure):
            self.lost = answer.reason
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
        assert isinstance(answer, State)
        self.known, self.lost = answer, None

    async def _call(self, within: float, method: str, *arguments: Any) -> Found | State | Failure:
        from ray.exceptions import RayActorError

        failure = Failure("")
        for _ in range(self._tries):
            response = getattr(self._handle, method).remote(*arguments)
            try:
                answer: Found | State | Failure = await asyncio.wait_for(response, within)
                return self._ours(answer)
            except TimeoutError:
                response.cancel()
                return Failure(f"no answer within {within:g} s")
            except RayActorError:
                failure = Failure("its process died")
            except Exception as error:  # whatever goes wrong in Ray or in the shard, the others' answers count
                return Failure(f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}")
        return failure

    def _ours(self, answer: Found | State | Failure) -> Found | State | Failure:
        """The answer, unless the shard was made anew in a way in which its scores do not compare."""
        if isinstance(answer, Failure) or answer.maker == self.known.maker:
            return answer
        return Failure(f"made anew as {answer.maker}, while the collection is {self.known.maker}: serve it again")


class Gather:
    """The replica that is asked from outside."""

    def __init__(self, members: list[Member], timeout: float, max_k: int) -> None:
        """Search ``members`` in this order.

        Args:
            members: the shards.
            timeout: seconds after which a shard is missing.
            max_k: the largest k that may be asked for.
        """
        self._shards = [_Shard(member) for member in members]
        self._timeout, self._max_k = timeout, max_k

    async def search(self, questions: list[str], k: int) -> dict[str, Any]:
        """The best ``k`` of all shards for each question, and the shards that are missing.

        Raises:
            RemoteError: all are.
        """
        within = self._timeout * -(-len(questions) // TOGETHER)
        found = await asyncio.gather(*(shard.search(questions, k, within) for shard in self._shards))
        self._check_any(found)
        both = list(zip(self._shards, found, strict=True))
        rows = (each.rows if each else shard.known.rows for shard, each in both)
        answers = [(first, each) for first, each in zip(accumulate(rows, initial=0), found, strict=False) if each]
        return {
            "missing": [shard.name for shard, each in both if each is None],
            "found": [merged([(first, each.hits[n]) for first, each in answers], k) for n in range(len(questions))],
        }

    async def collection(self) -> Collection:
        """What is served; raises as ``search`` does."""
        states = await asyncio.gather(*(shard.state(self._timeout) for shard in self._shards))
        self._check_any(states)
        known, maker = [shard.known for shard in self._shards], self._shards[0].known.maker
        return Collection(
            retriever=maker.retriever,
            fusion=DEFAULT_FUSION if maker.retriever == RetrieverKind.HYBRID else None,
            kind=", ".join(sorted({state.kind for state in known if state.kind})) or None,
            encoder=maker.encoder,
            fingerprint=_joint([state.fingerprint if state else None for state in states]),
            origin=_joint([state.origin if state else None for state in states]),
            corpus=_joint([state.corpus if state else None for state in states]),
            passages=sum(state.passages for state in known),
            sources=tuple(dict.fromkeys(source for state in known for source in state.sources)),
            shards=tuple(
                Part(
                    name=shard.name,
                    up=state is not None,
                    passages=shard.known.passages,
                    fingerprint=state.fingerprint if state else None,
                    error=shard.lost if state is None else None,
                )
                for shard, state in zip(self._shards, states, strict=True)
            ),
        )

    async def __call__(self, request: "Request") -> "Response":
        """Answer over HTTP; see ``ragqa.retrieval.remote``."""
        from starlette.responses import Response

        status, row = await self._answer(request)
        text = json.dumps({"ragqa": PROTOCOL, **row})
        return Response(text, status, media_type="application/json")

    async def _answer(self, request: "Request") -> tuple[int, dict[str, Any]]:
        asked = request.method, request.url.path
        try:
            if asked == ("GET", HEALTH):
                return 200, asdict(await self.collection())
            if asked == ("POST", SEARCH):
                return 200, await self.search(*parsed(await request.body(), self._max_k))
            return 404, {"error": f"there is no {' '.join(asked)}: GET {HEALTH} or POST {SEARCH} {_FORM}"}
        except BadInput as error:
            return 400, {"error": str(error)}
        except RemoteError as error:
            return 503, {"error": str(error)}

    def _check_any(self, answers: Sequence[object | None]) -> None:
        if all(answer is None for answer in answers):
            lost = "; ".join(f"{shard.name} ({shard.lost or 'no answer'})" for shard in self._shards)
            raise RemoteError(f"no shard answers: {lost}")


def merged(found: list[tuple[int, list[dict[str, Any]]]], k: int) -> list[dict[str, Any]]:
    """The best ``k`` hits of one question: by falling score, then by shard, then by row.

    ``found``: for each shard, what is to be added to its ids, and its hits, best first.
    """
    moved = ([{**hit, "id": first + hit["id"]} for hit in hits] for first, hits in found)
    return list(islice(heapq.merge(*moved, key=lambda hit: -hit["score"]), k))


def parsed(body: bytes, max_k: int) -> tuple[list[str], int]:
    """Questions and k of a request.

    Raises:
        BadInput: it is not a request, or of more than is allowed.
    """
    if len(body) > MAX_BYTES:
        raise BadInput(f"the request has {len(body)} bytes: at most {MAX_BYTES} are read")
    try:
        row = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the request is not JSON: {_FORM} is needed") from error
    questions, k = (row.get("questions"), row.get("k", DEFAULT_PASSAGES)) if isinstance(row, dict) else (None, None)
    if not isinstance(questions, list) or not questions or not all(isinstance(each, str) for each in questions):
        raise BadInput(f"questions must be a list of texts: {_FORM} is needed")
    if len(questions) > MAX_QUESTIONS:
        raise BadInput(f"{len(questions)} questions: at most {MAX_QUESTIONS} may be asked at once")
    if type(k) is not int or not 1 <= k <= max_k:
        raise BadInput(f"k must be a whole number from 1 to {max_k}")
    return [clean_question(question) for question in questions], k


def _joint(fingerprints: Sequence[str | None]) -> str | None:
    """One for all, None where one is missing."""
    if any(each is None for each in fingerprints):
        return None
    return hashlib.sha256(json.dumps(fingerprints).encode()).hexdigest()[:16]

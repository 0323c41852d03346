"""Gateway that sends questions to all shards and merges their best passages.

Replies name each shard that failed or was too slow. The gateway polls a lost shard in the background, and skips it in
new searches until it is back. So only searches that already wait for the shard pay the timeout.
"""

import asyncio
import hashlib
import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import Any

from index.serve.shard import ShardFailure, ShardHits, ShardReplica, ShardState
from ragqa.errors import RemoteError
from ragqa.retrieval.registry import DEFAULT_FUSION, RetrieverKind
from ragqa.retrieval.remote import ServedCollection, ServedShard

QUESTIONS_PER_TIMEOUT = 16
"""Number of questions per timeout; a larger request gets the timeout once for each group of this size."""
_RESTART_TIMEOUT = 10.0
"""Timeout in seconds for polls of a lost shard, whose replica may just be starting."""
_PAUSES = 0.1, 5.0
"""Shortest and longest pause, in seconds, between two polls of a lost shard."""


@dataclass(frozen=True)
class Member:
    """Shard of the collection, in its state at the start of the server."""

    name: str
    app: str
    """Name of the Ray Serve application that runs the shard."""
    state: ShardState
    replicas: int


class _ShardClient:
    def __init__(self, member: Member) -> None:
        from ray import serve

        self.name, self.last_state = member.name, member.state
        self.lost: str | None = None
        """Reason why the shard is lost, in one line; None if the shard answers."""
        self._handle = serve.get_deployment_handle(ShardReplica.__name__, app_name=member.app)
        self._attempts = 2 if member.replicas > 1 else 1  # another replica may live where one has died
        self._recovery: asyncio.Task[None] | None = None

    async def search(self, questions: list[str], k: int, timeout: float) -> ShardHits | None:
        """Return the shard's hits for each question; None if the shard is lost."""
        answer: ShardHits | None = await self._ask(timeout, "search", questions, k)
        if answer is not None:
            self.last_state = replace(self.last_state, rows=answer.rows)
        return answer

    async def fetch_state(self, timeout: float) -> ShardState | None:
        """Return the shard's current state; None if the shard is lost."""
        answer: ShardState | None = await self._ask(timeout, "read_state")
        self.last_state = answer or self.last_state
        return answer

    async def _ask(self, timeout: float, method: str, *arguments: Any) -> Any:
        """Call a method of the shard and return its result; None if the shard is lost."""
        if self.lost is not None:
            return None
        answer = await self._call(timeout, method, *arguments)
        if not isinstance(answer, ShardFailure):
            return answer
        if self.lost is None:  # another request may have found it lost meanwhile
            self.lost = answer.reason
            self._recovery = asyncio.create_task(self._poll_until_back())
        return None

    async def _poll_until_back(self) -> None:
        pause, longest = _PAUSES
        while isinstance(answer := await self._call(_RESTART_TIMEOUT, "read_state"), ShardFailure):
            self.lost = answer.reason
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
        self.last_state, self.lost = answer, None

    async def _call(self, timeout: float, method: str, *arguments: Any) -> Any:
        """Call a method of the shard and return its result, or a ShardFailure."""
        from ray.exceptions import RayActorError

        for _ in range(self._attempts):
            response = getattr(self._handle, method).remote(*arguments)
            try:
                answer = await asyncio.wait_for(response, timeout)
            except TimeoutError:
                response.cancel()
                return ShardFailure(f"no answer within {timeout:g} s")
            except RayActorError:
                continue
            except Exception as error:  # whatever goes wrong in one shard, the answers of the others count
                return ShardFailure(f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}")
            if isinstance(answer, ShardFailure) or answer.scoring == self.last_state.scoring:
                return answer
            # A rebuilt shard's scores may not be comparable with the scores of the other shards.
            change = f"rebuilt with {answer.scoring}, while the collection has {self.last_state.scoring}"
            return ShardFailure(f"{change}: serve it again")
        return ShardFailure("its process died")


class Gateway:
    """Searcher of a collection, which sends each search to all shards."""

    def __init__(self, members: list[Member], timeout: float) -> None:
        """Connect to the shards.

        Args:
            members: the shards; ids of passages count through the shards in this order.
            timeout: seconds per ``QUESTIONS_PER_TIMEOUT`` questions after which a shard counts as missing.
        """
        self._shards = [_ShardClient(member) for member in members]
        self._timeout = timeout

    async def search(self, questions: list[str], k: int) -> dict[str, Any]:
        """Return the best ``k`` hits for each question, and the names of missing shards.

        Returns:
            ``missing``: names of the missing shards; ``found``: the hits of each question as rows of
            ``ragqa.retrieval.remote``, best first.

        Raises:
            RemoteError: all shards are missing.
        """
        timeout = self._timeout * -(-len(questions) // QUESTIONS_PER_TIMEOUT)
        answers = await asyncio.gather(*(shard.search(questions, k, timeout) for shard in self._shards))
        self._check_any(answers)
        pairs = list(zip(self._shards, answers, strict=True))
        rows = (answer.rows if answer else shard.last_state.rows for shard, answer in pairs)
        firsts = accumulate(rows, initial=0)  # a missing shard keeps its range of ids
        present = [(first, answer) for first, answer in zip(firsts, answers, strict=False) if answer]
        return {
            "missing": [shard.name for shard, answer in pairs if answer is None],
            "found": [merge_hits([(first, a.hits[n]) for first, a in present], k) for n in range(len(questions))],
        }

    async def collection(self) -> ServedCollection:
        """Return a description of the collection and the current state of its shards.

        Raises:
            RemoteError: all shards are missing.
        """
        states = await asyncio.gather(*(shard.fetch_state(self._timeout) for shard in self._shards))
        self._check_any(states)
        last_states, scoring = [shard.last_state for shard in self._shards], self._shards[0].last_state.scoring
        return ServedCollection(
            retriever=scoring.retriever,
            fusion=DEFAULT_FUSION if RetrieverKind(scoring.retriever).can_fuse else None,
            kind=", ".join(sorted({state.kind for state in last_states if state.kind})) or None,
            encoder=scoring.encoder,
            **{name: _join_digests(states, name) for name in ("fingerprint", "origin", "corpus")},
            passages=sum(state.passages for state in last_states),
            sources=tuple(dict.fromkeys(source for state in last_states for source in state.sources)),
            shards=tuple(
                ServedShard(
                    name=shard.name,
                    up=state is not None,
                    passages=shard.last_state.passages,
                    fingerprint=state.fingerprint if state else None,
                    error=shard.lost if state is None else None,
                )
                for shard, state in zip(self._shards, states, strict=True)
            ),
        )

    def _check_any(self, answers: Sequence[object | None]) -> None:
        if all(answer is None for answer in answers):
            reasons = "; ".join(f"{shard.name} ({shard.lost or 'no answer'})" for shard in self._shards)
            raise RemoteError(f"no shard answers: {reasons}")


def merge_hits(hits_by_shard: list[tuple[int, list[dict[str, Any]]]], k: int) -> list[dict[str, Any]]:
    """Return the best ``k`` hits of one question by score; equal scores by order of the shards.

    Args:
        hits_by_shard: for each shard the offset of its ids, and its hits, best first.
        k: maximum number of hits.
    """
    moved = ([{**hit, "id": offset + hit["id"]} for hit in hits] for offset, hits in hits_by_shard)
    return list(islice(heapq.merge(*moved, key=lambda hit: -hit["score"]), k))


def _join_digests(states: Sequence[ShardState | None], name: str) -> str | None:
    """Return a digest of one field of all shards; None if a shard is missing."""
    if None in states:
        return None
    return hashlib.sha256(json.dumps([getattr(state, name) for state in states]).encode()).hexdigest()[:16]

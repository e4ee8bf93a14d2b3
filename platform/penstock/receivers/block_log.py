"""Keep the rows of one receiver in a checkpoint's store, block by block, each durable before it is acknowledged.

    blocks/<receiver>/<epoch>/<number>       a block, or the seal that ends the epoch
    blocks/<receiver>/<epoch>/opened         what the folder of an epoch begins with

Each start of a receiver has an epoch of its own, to which one process writes. A start first seals the epoch before it:
it creates a seal, exclusively, under the first number that is free there. So a writer of that epoch that is still
alive, or asleep, finds its next number taken by a seal. It refuses the acknowledgement, and its sender keeps the rows.
What it had acknowledged before has lower numbers, and is read.

The blocks are a chain. Numbers continue from epoch to epoch, and where a reader finds a seal the chain continues in
the next epoch with the number that the seal has. The chain is the same for all who read it, so nothing depends on which
driver is in force. A driver that was fenced and does not know it yet can only end the epoch of a receiver, whose next
start seals again.

Blocks are deleted from the beginning of the chain. Seals are never deleted: else a writer of long ago could
create its next block in the hole of the seal. So each epoch before the newest one has a file.

A writer that is stopped seals its own epoch, so a block that is deleted before the next start leaves a hole.

The folder of an epoch is begun before the seal of the epoch before it. So where a reader comes past a seal and finds
no folder, the folder was deleted, and maybe blocks with it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.checkpoint.storage.store import CheckpointStore, create_or_read
from penstock.errors import BlocksGone, CheckpointCorrupt, EpochSealed, NotFound
from penstock.receivers.blocks import Block, Place, Seal, block_file, epoch_file, parse, seal_file

__all__ = [
    "BEGINNING",
    "FOLDER",
    "QUIET",
    "BlockChain",
    "BlockCursor",
    "BlockLog",
    "BlockWriter",
    "ends_epoch",
    "unneeded",
]

FOLDER = "blocks"
BEGINNING = Place(0, 0)
"""Where the chain of a receiver begins that never ran. Nobody writes to this epoch: it only has a seal."""
QUIET = 64
"""Looks at which nothing has come, after which a reader asks whether blocks are gone."""
_NAME = re.compile(r"(\d{6,})/(\d{12,})")


@dataclass(frozen=True, slots=True)
class BlockLog:
    """The blocks of one receiver; `store` is the one of the job's checkpoint, `receiver` a name as `orders-0`."""

    store: CheckpointStore
    receiver: str

    @property
    def source(self) -> str:
        """Return the source whose receiver it is."""
        return self.receiver.rpartition("-")[0]

    @property
    def number(self) -> str:
        """Return the number of the receiver among those of its source, as text."""
        return self.receiver.rpartition("-")[2]

    @property
    def folder(self) -> str:
        """Return the folder of the blocks, below the checkpoint of the job."""
        return f"{FOLDER}/{self.receiver}"

    def path(self, place: Place) -> str:
        """Return the path of a place."""
        return f"{self.folder}/{place.epoch:06}/{place.number:012}"

    def open_epoch(self, epoch: int) -> None:
        """Begin the folder of an epoch, unless it is there."""
        if not self.is_open(epoch):
            create_or_read(self.store, self._opened(epoch), epoch_file(self.receiver, epoch))

    def is_open(self, epoch: int) -> bool:
        """Return whether the folder of an epoch is there, as it was begun."""
        return self.store.exists(self._opened(epoch))

    def _opened(self, epoch: int) -> str:
        return f"{self.folder}/{epoch:06}/opened"

    def look(self, place: Place) -> Block | Seal | None:
        """Return what is at a place; None where nothing is."""
        path = self.path(place)
        if not self.store.exists(path):  # what `read` misses may be there: only this answer is trusted
            return None
        try:
            data = self.store.read(path)
        except NotFound:
            return None
        return parse(data, receiver=self.receiver, place=place, path=path)

    def follow(self, start: Place) -> BlockCursor:
        """Return a reader of the chain from a place on, which is the beginning or one that a reader has reached."""
        return BlockCursor(self, start)

    def end_epochs(self, known: Place) -> Place:
        """Seal the chain, and return where a writer begins: an epoch after all that are there.

        `known` is any place of the chain from which on no block is deleted; raises BlocksGone where one is. A seal in
        the hole would end the chain before blocks that were acknowledged.
        """
        self.refuse_hole(known)
        writer = secrets.token_hex(16)
        end = self.follow(known)
        while True:
            for _ in end:
                pass
            self.refuse_hole(end.place)
            self.open_epoch(end.place.epoch + 1)
            wanted = seal_file(self.receiver, end.place, writer=writer)
            # A block that came first is one more to pass; the seal of another starter is not ours to write after.
            if create_or_read(self.store, self.path(end.place), wanted) == wanted:
                return Place(end.place.epoch + 1, end.place.number)

    def listed(self) -> list[Place]:
        """Return the places that a listing shows, in the order of the chain; a hint only."""
        start = self.folder
        names = (_NAME.fullmatch(path.removeprefix(f"{start}/")) for path in self.store.list(start))
        return sorted(Place(int(name[1]), int(name[2])) for name in names if name is not None)

    def first(self) -> Place:
        """Return where the chain begins now: the oldest block that is kept, whole or not, or the end where none is.

        Where an epoch before that block has no file, not even its seal, it is where that epoch began.
        """
        listed, end = self.listed(), BEGINNING
        for place in listed:
            if place.epoch > end.epoch:
                break
            try:
                is_block = isinstance(self.look(place), Block)
            except CheckpointCorrupt:
                is_block = not ends_epoch(place, listed)
            if is_block:
                return place
            end = Place(place.epoch + 1, place.number)
        return end

    def refuse_hole(self, place: Place) -> None:
        """Raise BlocksGone where a place is no end of the chain, but the hole of what was deleted."""
        if self.look(place) is not None:
            return
        listed = self.listed()
        beyond = [other for other in listed if other > place]
        if not beyond and self.is_deleted(place.epoch, listed):
            raise BlocksGone(
                f"the folder of epoch {place.epoch} of receiver {self.receiver} is gone, with the blocks from number "
                f"{place.number:,} on that it had",
                where=self.path(place),
            )
        if beyond and self.look(place) is None:
            raise BlocksGone(
                f"receiver {self.receiver} has blocks up to {beyond[-1].number:,}, and block {place.number:,} of epoch "
                f"{place.epoch} is gone",
                where=self.path(place),
            )

    def is_deleted(self, epoch: int, listed: Sequence[Place]) -> bool:
        """Return whether the folder of an epoch that no listed place follows was there, and is not."""
        if epoch == BEGINNING.epoch or self.is_open(epoch):
            return False
        before = [place for place in listed if place.epoch == epoch - 1]
        if not before:
            return True  # the seal of the epoch before it is never deleted
        seal = self.look(before[-1])
        return isinstance(seal, Seal) and seal.has_next

    def sweep(self, floor: Place) -> int:
        """Delete the blocks before a place, oldest first, and return how many went; the last of each epoch stays.

        It is the seal of an epoch that has ended, and the newest block of another. Who starts a writer learns from it
        which number is the next, before anybody has read a position.
        """
        gone = unneeded(self.listed(), floor)
        for place in gone:
            self.store.delete(self.path(place))
        return len(gone)


def unneeded(listed: Sequence[Place], floor: Place) -> list[Place]:
    """Return the places that a sweep deletes, of those that are listed in order."""
    last = {place.epoch: place for place in listed}
    return [place for place in listed if place < floor and place != last[place.epoch]]


def ends_epoch(place: Place, listed: Sequence[Place]) -> bool:
    """Return whether a file that cannot be read was the seal of its epoch: its last file, and others are after it."""
    return not any(other.epoch == place.epoch and other > place for other in listed) and place.epoch < listed[-1].epoch


@dataclass(slots=True)
class BlockCursor:
    """Read the chain of a receiver; another iteration resumes where it has grown.

    Attributes:
        place: The next place to read. Where a cursor has ended, it is the end of the chain.
    """

    log: BlockLog
    place: Place

    def __iter__(self) -> Iterator[tuple[Place, Block]]:
        """Yield the blocks that are there, each with its place."""
        while (entry := self.log.look(self.place)) is not None:
            match entry:
                case Seal():
                    self.place = Place(self.place.epoch + 1, self.place.number)
                case Block():
                    at, self.place = self.place, self.place.next
                    yield at, entry


class BlockChain:
    """What is known of the blocks of one receiver from a place on: those before `cursor.place`.

    `is_first` says that no position is before them.
    """

    def __init__(self, log: BlockLog, start: Place) -> None:
        self.start = start
        self.is_first = True
        self.cursor: BlockCursor = log.follow(start)
        self.blocks: list[tuple[Place, Block]] = []
        self._quiet = 0

    def grow(self) -> None:
        """Read what has come; after many looks at which nothing had, raises BlocksGone where the chain has a hole."""
        end = self.cursor.place
        self.blocks.extend(self.cursor)
        self._quiet = self._quiet + 1 if self.cursor.place == end else 0
        if self._quiet == QUIET:  # a listing costs more than a look
            self._quiet = 0
            self.cursor.log.refuse_hole(end)

    def between(self, first: int, end: int) -> list[tuple[Place, Block]]:
        """Return the blocks with these numbers, `end` exclusive."""
        return [(place, block) for place, block in self.blocks if first <= place.number < end]

    def pass_to(self, place: Place) -> None:
        """Forget the blocks before a place, which is a position's."""
        self.start, self.is_first = place, False
        self.blocks = [known for known in self.blocks if known[0].number >= place.number]

    @classmethod
    def opened(cls, log: BlockLog, start: Place) -> BlockChain:
        """Return what is there now from a place on; raises BlocksGone where a block in between is gone."""
        log.refuse_hole(start)
        chain = cls(log, start)
        chain.grow()
        log.refuse_hole(chain.cursor.place)
        return chain


@dataclass(slots=True)
class BlockWriter:
    """Write the blocks of one epoch, one after the other; not for use by several threads.

    Attributes:
        place: Where the next block goes. What is before it, is durable.
    """

    log: BlockLog
    place: Place
    writer: str = field(default_factory=lambda: secrets.token_hex(16))
    _begun: bytes | None = None
    """The block whose outcome is not known."""

    def write(self, stream: bytes, rows: int) -> Place:
        """Write a block and return its place; it is durable then, and its rows may be acknowledged.

        Where the store does not answer, or the outcome is unknown, its error comes out. The caller writes the same
        rows again until this returns: they have the number until then.

        Raises EpochSealed where the receiver was started elsewhere since, or other rows had the number: these are not
        kept.
        """
        at = self.place
        path = self.log.path(at)
        file = block_file(self.log.receiver, at, writer=self.writer, rows=rows, stream=stream)
        # Its first try may have been read, and deleted since: other rows would be created in the hole, and lost.
        is_other = self._begun is not None and self._begun != file
        self._begun = file
        if is_other or create_or_read(self.log.store, path, file) != file:
            raise EpochSealed(f"receiver {self.log.receiver} was started again since", where=path)
        self.place, self._begun = at.next, None
        return at

    def seal(self) -> None:
        """End the epoch after its newest block, so that a block which is deleted from now on is missed.

        Nothing is written after it. The next start seals it instead where the store raises, where nobody knows whether
        the last block was written, and where the folder of the epoch is gone.
        """
        if self._begun is not None or not self.log.is_open(self.place.epoch):
            return  # the chain would end in a hole, or the folder that is gone would be missed no more
        self.log.open_epoch(self.place.epoch + 1)
        seal = seal_file(self.log.receiver, self.place, writer=self.writer)
        create_or_read(self.log.store, self.log.path(self.place), seal)

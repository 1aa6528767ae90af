"""Keeps incidents and facts of runs as JSON, so that a new watcher goes on where the last one was."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

VERSION = 1
BUSY_TIMEOUT_S = 5.0

_TABLES = """
CREATE TABLE IF NOT EXISTS version (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS run (job_id TEXT PRIMARY KEY, facts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS incident (
    job_id TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, fingerprint TEXT NOT NULL, opened_s REAL NOT NULL,
    resolved_s REAL, body TEXT NOT NULL, PRIMARY KEY (job_id, id)
);
CREATE INDEX IF NOT EXISTS incident_fingerprint ON incident (fingerprint);
"""


class StoreError(Exception):
    """The store cannot be used; the message says why."""


class Store(Protocol):
    """Where incidents and facts of runs are kept."""

    def save_incidents(self, job_id: str, incidents: Iterable[Mapping[str, Any]]) -> None:
        """Keep these, in place of older versions of them."""

    def incidents(self, job_id: str) -> list[dict[str, Any]]:
        """All of a job, oldest first."""

    def save_run(self, job_id: str, facts: Mapping[str, Any]) -> None:
        """Keep a run's facts, in place of older ones."""

    def run(self, job_id: str) -> dict[str, Any] | None:
        """A run's facts; None where none were kept."""

    def close(self) -> None:
        """Let go of it."""


class SqliteStore:
    """A store in one file, which a second process may read meanwhile."""

    def __init__(self, path: Path | str) -> None:
        """Open or make it.

        Raises:
            StoreError: The file cannot be opened, or is of a newer diagd.
        """
        try:
            # Used by one thread at a time, under the aggregator's lock.
            self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            with self._db:
                self._db.executescript(_TABLES)
            self._check_version(path)
        except sqlite3.Error as exc:
            raise StoreError(f"{path} cannot be used as a store: {exc}") from exc

    def _check_version(self, path: Path | str) -> None:
        row = self._db.execute("SELECT version FROM version").fetchone()
        if row is None:
            with self._db:
                self._db.execute("INSERT INTO version VALUES (?)", (VERSION,))
        elif row[0] > VERSION:
            self._db.close()
            raise StoreError(f"{path} was written by a newer diagd (its version is {row[0]}, known is {VERSION})")

    def save_incidents(self, job_id: str, incidents: Iterable[Mapping[str, Any]]) -> None:
        """Keep these, in place of older versions of them.

        Raises:
            StoreError: They could not be written.
        """
        rows = [
            (job_id, i["id"], i["kind"], i["fingerprint"], i["opened_at"], i["resolved_at"], json.dumps(i))
            for i in incidents
        ]
        self._write("INSERT OR REPLACE INTO incident VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def incidents(self, job_id: str) -> list[dict[str, Any]]:
        """All of a job, oldest first."""
        rows = self._db.execute("SELECT body FROM incident WHERE job_id = ? ORDER BY opened_s, id", (job_id,))
        return [json.loads(body) for (body,) in rows]

    def save_run(self, job_id: str, facts: Mapping[str, Any]) -> None:
        """Keep a run's facts, in place of older ones.

        Raises:
            StoreError: They could not be written.
        """
        self._write("INSERT OR REPLACE INTO run VALUES (?, ?)", [(job_id, json.dumps(facts))])

    def run(self, job_id: str) -> dict[str, Any] | None:
        """A run's facts; None where none were kept."""
        row = self._db.execute("SELECT facts FROM run WHERE job_id = ?", (job_id,)).fetchone()
        return None if row is None else json.loads(row[0])

    def close(self) -> None:
        """Let go of it."""
        self._db.close()

    def _write(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        try:
            with self._db:
                self._db.executemany(statement, rows)
        except sqlite3.Error as exc:
            raise StoreError(f"the store could not be written: {exc}") from exc

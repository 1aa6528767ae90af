"""What is kept comes back, and a store that cannot be used says so."""

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from diagd.daemon.store.store import SqliteStore, StoreError


def body(id: str = "001", **changes: Any) -> dict[str, Any]:
    base = {"id": id, "kind": "hang.store_wait", "fingerprint": "f", "opened_at": 5.0, "resolved_at": None}
    return {**base, **changes}


def test_incidents_come_back_in_the_order_in_which_they_were_opened(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    store.save_incidents("a", [body("002", opened_at=9.0), body("001"), body("003", opened_at=7.0)])
    store.save_incidents("b", [body("001")])
    store.close()
    again = SqliteStore(tmp_path / "s.sqlite")
    assert [i["id"] for i in again.incidents("a")] == ["001", "003", "002"]
    assert again.incidents("c") == []
    again.close()


def test_a_newer_version_of_an_incident_takes_the_place_of_the_old(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    store.save_incidents("a", [body()])
    store.save_incidents("a", [body(resolved_at=6.0)])
    assert store.incidents("a") == [body(resolved_at=6.0)]
    store.close()


def test_facts_of_a_run_are_kept(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    assert store.run("a") is None
    store.save_run("a", {"command": ["x"]})
    store.save_run("a", {"command": ["y"]})
    assert store.run("a") == {"command": ["y"]}
    store.close()


def test_another_process_reads_while_this_one_writes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    store.save_incidents("a", [body()])
    code = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('select id from incident').fetchall())"
    read = [sys.executable, "-c", code, str(tmp_path / "s.sqlite")]
    assert "001" in subprocess.run(read, capture_output=True, text=True, check=True).stdout
    store.close()


def test_what_was_saved_before_a_kill_is_there_after_it(tmp_path: Path) -> None:
    code = (
        "import os, sys; from diagd.daemon.store.store import SqliteStore\n"
        "SqliteStore(sys.argv[1]).save_run('a', {'x': 1}); os.kill(os.getpid(), 9)"
    )
    path = tmp_path / "s.sqlite"
    killed = subprocess.run([sys.executable, "-c", code, str(path)], env=_env(), check=False)
    assert killed.returncode == -9
    store = SqliteStore(path)
    assert store.run("a") == {"x": 1}
    store.close()


def _env() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize("make", ["garbage", "newer", "folder"])
def test_a_store_that_cannot_be_used_says_why(tmp_path: Path, make: str) -> None:
    path = tmp_path / "s.sqlite"
    if make == "garbage":
        path.write_bytes(b"no database " * 1000)
    elif make == "folder":
        path.mkdir()
    else:
        SqliteStore(path).close()
        with sqlite3.connect(path) as db:
            db.execute("UPDATE version SET version = 99")
        db.close()
    with pytest.raises(StoreError, match=r"s\.sqlite"):
        SqliteStore(path)

"""Several files of the catalog change as one: all or none of them, even if the process dies.

1. The new contents are staged, and a journal names them and what is to go.
2. The journal is renamed into its place. From here on the change is decided.
3. Its steps are carried out, each of which can be repeated. Then the journal is removed.

A process that dies in step 3 leaves the journal. The next one to lock the catalog finishes it.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from rmt_pipeline.files import stage_file, sync_directory
from rmt_pipeline.protocol.errors import Corruption

_REMEDY = (
    "Nothing is served from this directory until it is known: a table may be half renamed or half "
    "dropped, and so stand in two files. Put a copy of the journal back; or look which files of "
    "metadata/ have one uuid, keep one of each, and remove the journal"
)


def decide(
    journal: Path, staged: Path, replaced: Mapping[Path, Path], gone: Iterable[Path]
) -> None:
    """Write the journal (steps 1 and 2), after which `complete` carries it out.

    `replaced` maps each file to the staged file that takes its place; `gone` are files to remove;
    `staged` is where the journal is written before it is renamed. Raises DiskFull, and then nothing
    has changed.
    """
    root = journal.parent
    content = {
        "replaced": [
            [str(new.relative_to(root)), str(file.relative_to(root))]
            for file, new in replaced.items()
        ],
        "gone": [str(file.relative_to(root)) for file in gone],
    }
    written = stage_file(staged, json.dumps(content, ensure_ascii=False).encode())
    # The names of what is staged come first: who finds the journal takes a file that is not there
    # for one that has its new name.
    for directory in {new.parent for new in replaced.values()}:
        sync_directory(directory)
    written.replace(journal)
    sync_directory(root)


def complete(journal: Path) -> bool:
    """Carry out the journal (step 3); False if there is none. The caller holds the
    catalog's lock. Raises Corruption, and then has removed nothing.
    """
    root = journal.parent
    try:
        content = json.loads(journal.read_bytes())
        replaced = [(root / new, root / file) for new, file in content["replaced"]]
        gone = [root / file for file in content["gone"]]
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Corruption(f"{journal} cannot be read: {error.strerror}. {_REMEDY}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Corruption(
            f"{journal} does not say what is being renamed: {error!r}. {_REMEDY}"
        ) from error
    for new, file in replaced:
        if new.exists():  # else this step was done before the process died
            new.replace(file)
        elif not file.exists():
            raise Corruption(f"{new}, which is to become {file}, is gone. {_REMEDY}")
    for file in gone:
        file.unlink(missing_ok=True)
    for directory in {file.parent for _, file in replaced} | {file.parent for file in gone}:
        sync_directory(directory)
    journal.unlink()
    return True

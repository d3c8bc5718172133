"""That a part has the rows that its manifest says it has: read, and hashed anew."""

from rmt_pipeline.compute.rows.write import FILE_POSITIONS
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.store.hashes.rows import RowHashes, hash_table
from rmt_pipeline.store.layout import data_file_number
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.parquet import read_batches


def rows_are_those_of(manifest: Manifest, paths: list[str]) -> bool:
    """Whether these files have just the rows whose hashes are in `manifest`.
    False for what can't be read, or is gone.
    """
    names = [column.name for column in manifest.columns]
    found = RowHashes(0, 0, dict.fromkeys(names, 0), 0)
    try:
        for path in paths:
            position = data_file_number(path) * FILE_POSITIONS
            for batch in read_batches(path):
                if batch.schema.names != names:
                    return False
                found += hash_table(batch, start_position=position)
                position += batch.num_rows
    except (Corruption, FileNotFoundError):
        return False
    claimed = manifest.rows, manifest.row_hash, manifest.content_hash
    return claimed == (found.rows, found.row_hash, found.content_hash)

"""Parts read with the table's columns of now: by others, by FINAL, before an ALTER."""

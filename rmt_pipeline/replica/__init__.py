"""Actions of one replica. One file each; each idempotent; each may die anywhere."""

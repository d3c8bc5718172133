"""How a replica is made, begins, takes over another one's state, and goes (spec §11)."""

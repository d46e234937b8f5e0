-- The operators' catalogs as they were applied; the last one counts.
CREATE TABLE catalog (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    at   REAL NOT NULL,
    by   TEXT NOT NULL, -- the operator
    name TEXT NOT NULL, -- the file's, as the operator called it
    text TEXT NOT NULL
) STRICT;

-- Numbers of replicas that were set by hand since then.
CREATE TABLE scale (
    model    TEXT PRIMARY KEY,
    replicas INTEGER NOT NULL
) STRICT;

CREATE TABLE replica (
    id     TEXT PRIMARY KEY,
    record TEXT NOT NULL -- JSON of ReplicaRecord
) STRICT;

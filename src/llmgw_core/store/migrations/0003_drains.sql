-- Nodes that take nothing new, and are emptied.
CREATE TABLE drain (
    node         TEXT PRIMARY KEY,
    by           TEXT NOT NULL, -- the operator
    at           REAL NOT NULL, -- when it was last asked for
    until        REAL, -- no move begins after this
    stop_first   INTEGER NOT NULL,
    max_parallel INTEGER NOT NULL
) STRICT;

-- Changes of a model that were asked for again after one failed.
CREATE TABLE rollout (
    model      TEXT PRIMARY KEY,
    at         REAL NOT NULL,
    stop_first INTEGER NOT NULL
) STRICT;

-- By model, how its replicas ran before the last change, and whether that is how they are to run again.
CREATE TABLE served (
    model      TEXT PRIMARY KEY,
    offers     TEXT NOT NULL, -- JSON, the preferred first
    rolled_back INTEGER NOT NULL
) STRICT;

-- When each model was first applied; kept when it goes, since it may come again.
CREATE TABLE model (
    name    TEXT PRIMARY KEY,
    created REAL NOT NULL
) STRICT;

-- Gateways that are there, or went so lately that they may still send requests somewhere.
CREATE TABLE gateway (
    name     TEXT NOT NULL,
    instance TEXT NOT NULL, -- its process
    since    REAL NOT NULL,
    PRIMARY KEY (name, instance)
) STRICT;

-- API keys of users. Nobody could use what stands here.
CREATE TABLE user_key (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    digest     TEXT NOT NULL UNIQUE, -- SHA-256 of the whole key, in hex
    created    REAL NOT NULL,
    by         TEXT NOT NULL, -- the operator
    expires    REAL,
    models     TEXT NOT NULL, -- JSON, a list of names; empty: all
    rpm        INTEGER NOT NULL, -- requests in a minute; 0: without limit
    concurrent INTEGER NOT NULL, -- requests in flight; 0: without limit
    revoked    REAL
) STRICT;

CREATE UNIQUE INDEX user_key_of ON user_key (name) WHERE revoked IS NULL;

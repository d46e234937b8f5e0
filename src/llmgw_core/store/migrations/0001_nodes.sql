-- Times are seconds since 1970 (UTC), as the control plane's clock had them.

CREATE TABLE node (
    name            TEXT PRIMARY KEY,
    serial          TEXT NOT NULL, -- of the certificate that it came with last, in hex
    key_fingerprint TEXT NOT NULL, -- SHA-256 of its public key, in hex
    until           REAL NOT NULL, -- end of that certificate
    address         TEXT NOT NULL, -- where it last called from
    instance        TEXT NOT NULL, -- the agent's process
    report_number   INTEGER NOT NULL, -- the last stored report of that instance
    facts           TEXT, -- JSON of NodeFacts; NULL before the first report
    first_seen      REAL NOT NULL,
    last_seen       REAL NOT NULL
) STRICT;

-- Every certificate that was ever shown, so that revoking a node revokes all that it had.
CREATE TABLE certificate (
    serial     TEXT PRIMARY KEY,
    role       TEXT NOT NULL,
    name       TEXT NOT NULL,
    until      REAL NOT NULL,
    first_seen REAL NOT NULL
) STRICT;

CREATE INDEX certificate_of ON certificate (name);

CREATE TABLE revocation (
    serial TEXT PRIMARY KEY,
    name   TEXT NOT NULL, -- empty when only the serial was given
    at     REAL NOT NULL,
    by     TEXT NOT NULL, -- the operator
    reason TEXT NOT NULL
) STRICT;

CREATE TABLE event (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     REAL NOT NULL,
    node   TEXT NOT NULL, -- empty when it is about no node
    kind   TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;

CREATE INDEX event_of_node ON event (node, id);

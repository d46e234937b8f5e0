"""The authority: certificates made, recorded, read and judged, with `cryptography` and no openssl binary.

validity and errors are pure and light; certificate, identity and peer are pure; files, record and authority touch the
disk. Nothing here looks at the clock: `now` is an argument, in UTC with its time zone.
"""

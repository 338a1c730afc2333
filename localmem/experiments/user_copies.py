"""Users of a benchmark as copies of others, made by a PostgreSQL server itself, so that a store of millions of memories
is filled in an hour and not in a day.

A copy has the rows of its original under a name of its own, in every text too, so no two users hold the same text. Its
vectors are those of its original. Nothing here knows what the rows mean beyond their names.
"""

from sqlalchemy import Connection, Table

from localmem.store.schema import banks, batches, changes, jobs, sessions, turns

_TEXTS = frozenset(("text", "body"))
_DIGEST = "encode(sha256('\\x7061737361676500'::bytea || convert_to({}, 'UTF8')), 'hex')"  # as passage_digest has it


def user_name(number: int) -> str:
    """The name of a user; SQL below says the same."""
    return f"user{number:06d}"


def copy_users(connection: Connection, originals: int, first: int, last: int) -> None:
    """Make the users `first` to `last` copies of the first `originals`, in turn. The store must not be encrypted."""
    name, source = "'user' || lpad(n::text, 6, '0')", f"'user' || lpad((n % {originals})::text, 6, '0')"
    numbers = f'JOIN generate_series({first}, {last}) n ON t."user" = {source}'
    new_text = f"replace(t.text, {source}, {name})"

    def insert(table: Table, more: str = "") -> None:
        own = {
            "user": name,
            "batch": "new.number",
            **{column: f"replace(t.{column}, {source}, {name})" for column in _TEXTS},
        }
        columns = [column.name for column in table.columns if column.name != "number"]
        values = ", ".join(own.get(column, f't."{column}"') for column in columns)
        targets = ", ".join(f'"{column}"' for column in columns)
        run(f"INSERT INTO {table.name} ({targets}) SELECT {values} FROM {table.name} t {numbers} {more}")  # noqa: S608

    def run(statement: str) -> None:
        connection.exec_driver_sql(statement.replace("%", "%%"), ())

    run("SET LOCAL enable_seqscan = off")  # a plan made while the tables were small would read all of them
    for table in (sessions, turns, batches, jobs, banks):
        insert(table)
    same = ("system", "kind", "cause", "state")
    new = " AND ".join([f'new."user" = {name}', *(f"new.{column} = old.{column}" for column in same)])
    insert(changes, f"JOIN batches old ON old.number = t.batch JOIN batches new ON {new}")
    old_digest, new_digest = _DIGEST.format("t.text"), _DIGEST.format(new_text)
    run(
        f"INSERT INTO embeddings SELECT {new_digest}, e.identity, e.vector "  # noqa: S608  # numbers and names of ours
        f"FROM turns t {numbers} JOIN embeddings e ON e.digest = {old_digest} "
        "ON CONFLICT DO NOTHING"  # what a measurement told an original does not name its user
    )
    if connection.exec_driver_sql("SELECT to_regclass('unit_vectors')").scalar():
        run(
            f"INSERT INTO unit_vectors SELECT {name}, v.system, v.encoder, v.unit, {new_digest}, v.vector "  # noqa: S608
            f'FROM turns t {numbers} JOIN unit_vectors v ON v."user" = t."user" AND v.unit = \'u-\' || t.id'
        )

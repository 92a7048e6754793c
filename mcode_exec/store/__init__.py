"""The database: connection, tables, migrations, transactions.  The only room that imports peewee.

Row functions take place on the store thread, inside a transaction that a
caller opened through `Store.read` or `Store.write`; they return records and
hold no rule of the domain.
"""

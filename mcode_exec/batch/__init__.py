"""Jobs: a spec becomes many invocations, and many results one outcome.

`spec` reads a file · `templates` and `conditions` are its two small languages ·
`plan` is every task that it comes to, in order · `settings` makes an invocation
of one · `running` is the job run of this process · `ledger` the store's side of
it.  Nothing here talks to a model or owns a limit of a provider.
"""

"""Which messages of a topic a consumer wants: by tags, or by a SQL92 expression. Pure.

`filters.py` is the face; it loads the language (`sql_filter.py`, of trees that `sql_syntax.py`
makes) with the first expression.
"""

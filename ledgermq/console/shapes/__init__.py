"""Shapes of requests and answers, one file for each part of the console.

Names are snake_case; times are ms since 1970 (`_ms`) unless the name says that it is a span
(`lag_ms`, `took_ms`); null stands for what is not known. Every field of an answer is always there.
A list that may be long is a page with the number of all rows. What could not be asked is named in
`answers`.
"""

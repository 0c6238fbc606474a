"""`soliton chat`: a conversation in the terminal.

Owns what the user types and sees. Read `session` (the loop), `slash` (the commands), `conversation`
(what has been said), `answer` (the tokens of a reply), then where replies come from: `in_process`
and `over_http`. `screen`, `styles` and `width` write; `editor`, `entry` and `history` read; `why`,
`sampling` and `stored` each belong to the command of that name (`/set` to `sampling`). Nothing here
parses options: `chat.py` does.
"""

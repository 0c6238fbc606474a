"""Replicas of one server behind a door, as an application of Ray Serve.

Owns which replica answers a request, and how its bytes get there. A replica holds the unchanged app
of `server.app`; the door understands no more of a request than where it belongs.

To read: `routed.py` (what goes from the door to a replica and back), `ids.py` (whose stream an id
names), `prompt_steps.py` (the hashes of a prompt), `choice.py` (which replica), `router.py` (the
same for Ray), `kept_prompts.py` and `replica.py` (the replica), `asgi_call.py` (one request in its
app), `door.py` (the door), `deploy.py` (both together), `command.py` (`soliton cluster`).
"""

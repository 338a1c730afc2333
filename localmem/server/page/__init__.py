"""The page that the server shows to a person: chat, memory, sessions, and why a reply says what it says.

A thin door over the same functions as the API. Templates hold no logic; nothing is loaded from the network.
"""

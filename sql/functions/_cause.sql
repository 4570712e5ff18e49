-- An error as readers see it: up to its first colon, as what follows may quote a row or a provider's answer. Of what kept
-- a connection from being made, or ended it, as much more as is known to quote nothing.
-- Its names are bound when it is created, so it needs no search_path and vanishes into the query.
-- src/server/api/redact.rs does the same for tokens without `payloads`, by the same list.
CREATE OR REPLACE FUNCTION outboxd._cause(text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(substring($1 FROM '^(?:connect|no answer after the request went out): (?:'
                                'Connection refused|Connection reset|Connection timed out|Connection aborted|No route to host|'
                                'Network is unreachable|Network is down|Host is down|Broken pipe|Cannot assign requested address|'
                                'failed to lookup address information|invalid peer certificate: UnknownIssuer|'
                                'invalid peer certificate: certificate expired|invalid peer certificate: certificate not valid yet|'
                                'invalid peer certificate: certificate not valid for name|invalid peer certificate|received fatal alert|'
                                'received corrupt message|peer is incompatible|peer closed connection|tls handshake eof|unexpected end of file|'
                                'connection closed|connection error|stream error|operation was canceled|tunnel error|'
                                'invalid HTTP version parsed'
                                ')'), left(split_part($1, ':', 1), 120));

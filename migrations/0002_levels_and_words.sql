-- Loudness in rows of its own: appended to a column of `session`, each commit would write the whole call anew, and every
-- list would read past it.
create table session_level (
    session_id integer not null references session (id) on delete cascade,
    -- The first one, counted from the ready byte.
    frame      integer not null,
    -- One byte for each frame and side, see `wire::api::sessions::Levels`.
    caller     blob not null,
    agent      blob not null,
    primary key (session_id, frame)
) strict, without rowid;

insert into session_level (session_id, frame, caller, agent)
select id, 0, levels_caller, levels_agent from session where length(levels_caller) + length(levels_agent) > 0;

alter table session drop column levels_caller;
alter table session drop column levels_agent;

-- Which words were said in which session: one row for each session that is over, under its number. Only the index is
-- kept; the text itself is in `transcript`.
create virtual table spoken using fts5 (text, content = '', contentless_delete = 1, tokenize = 'unicode61');

insert into spoken (rowid, text)
select t.session_id, group_concat(json_extract(piece.value, '$[1]'), '')
from transcript t join session s on s.id = t.session_id, json_each(t.pieces) piece
where s.ended_at_ms is not null
group by t.session_id;

create trigger spoken_goes_with_its_session after delete on session begin
    delete from spoken where rowid = old.id;
end;

create index session_ended on session (ended_at_ms) where ended_at_ms is not null;

-- All that a list can be filtered by, so that looking through every session reads none of their role texts.
create index session_list on session (id, caller, persona_id, voice, end_reason, ended_at_ms, began_at_ms);

-- The first form of the file. Never edited once merged: changes are new files, and none may lose data.
-- Times are Unix milliseconds. `strict` makes SQLite refuse values of another type than the column's.

-- One row for each thing that exists once.
create table setting (
    name  text primary key,
    value text not null
) strict, without rowid;

-- Who may operate: the hash of the one password, once it is set.
create table password (
    only_one   integer primary key check (only_one = 1),
    -- Argon2id in PHC form, with salt and parameters.
    hash       text not null check (hash like '$argon2id$%'),
    set_at_ms  integer not null
) strict;

-- Browsers that signed in. A row is a cookie; only its hash is kept, so that a copy of this file lets nobody in.
create table operator_session (
    token_hash     blob primary key check (length(token_hash) = 32),
    created_at_ms  integer not null,
    used_at_ms     integer not null,
    expires_at_ms  integer not null check (expires_at_ms > created_at_ms)
) strict, without rowid;

create table persona (
    id             integer primary key autoincrement,
    -- The newest version; the check that it exists is the foreign key.
    version        integer not null,
    -- Copied from the newest version, for the rule that no two present personas share a name.
    name           text not null,
    -- Shipped with the program, by this word; null: an operator's own.
    preset         text unique,
    archived_at_ms integer,
    created_at_ms  integer not null,
    foreign key (id, version) references persona_version (persona_id, version) deferrable initially deferred
) strict;

create unique index persona_name on persona (name collate nocase) where archived_at_ms is null;

-- What a persona was; rows are only added, so that a session's version can always be read again.
create table persona_version (
    persona_id     integer not null references persona (id) deferrable initially deferred,
    version        integer not null check (version >= 1),
    name           text not null check (length(name) between 1 and 80),
    role_text      text not null check (length(cast(role_text as blob)) <= 16384),
    -- A name, not a reference: a persona may be imported before its voice is there.
    voice          text,
    -- JSON of `wire::api::personas::SamplingWish`.
    sampling       text not null check (json_valid(sampling)),
    greeting       text not null check (greeting in ('agent_first', 'caller_first')),
    changed_at_ms  integer not null,
    changed_by     text not null,
    primary key (persona_id, version)
) strict, without rowid;

-- Exactly one persona answers callers that name none.
create table default_persona (
    only_one   integer primary key check (only_one = 1),
    persona_id integer not null references persona (id)
) strict;

-- Links that let anybody who has them call one persona.
create table share (
    id             integer primary key autoincrement,
    persona_id     integer not null references persona (id),
    token_hash     blob not null unique check (length(token_hash) = 32),
    label          text not null check (length(label) <= 80),
    created_at_ms  integer not null,
    expires_at_ms  integer check (expires_at_ms > created_at_ms),
    used_at_ms     integer
) strict;

create index share_of_persona on share (persona_id);

create table api_token (
    id             integer primary key autoincrement,
    name           text not null check (length(name) between 1 and 80),
    token_hash     blob not null unique check (length(token_hash) = 32),
    -- Names of `wire::api::account::Scope`, sorted, joined by spaces.
    scopes         text not null check (scopes <> ''),
    persona_id     integer references persona (id),
    created_at_ms  integer not null,
    expires_at_ms  integer check (expires_at_ms > created_at_ms),
    used_at_ms     integer
) strict;

-- Voices that operators added, and what they decided about voices of the model folder.
create table voice (
    id             integer primary key autoincrement,
    name           text not null check (length(name) between 1 and 64),
    origin         text not null check (origin in ('model', 'bundle', 'recording')),
    -- The prompt as safetensors; null for voices of the model folder, which are read from there.
    bundle         blob check ((bundle is null) = (origin = 'model')),
    -- Of the checkpoint the bundle was made for: a voice of one model means nothing to another.
    model          text not null,
    frames         integer not null check (frames >= 1),
    -- Who is heard and that they agreed.
    consent        text check ((consent is null) = (origin <> 'recording')),
    archived_at_ms integer,
    created_at_ms  integer not null
) strict;

create unique index voice_name on voice (model, name collate nocase);

-- Spoken samples of voices, made by the engine; can be made again, so they may be deleted at any time.
create table voice_preview (
    model   text not null,
    voice   text not null collate nocase,
    -- 16-bit mono WAV at 24 kHz.
    wav     blob not null,
    made_at_ms integer not null,
    primary key (model, voice)
) strict, without rowid;

create table session (
    id              integer primary key autoincrement,
    caller          text not null,
    persona_id      integer,
    persona_version integer,
    persona         text not null,
    role_text       text not null,
    voice           text not null,
    -- 64 bits, kept as SQLite's signed integer.
    seed            integer not null,
    began_at_ms     integer not null,
    live_at_ms      integer,
    -- The last sign of it; written with every batch while it runs.
    seen_at_ms      integer not null,
    ended_at_ms     integer,
    end_reason      text check ((end_reason is null) = (ended_at_ms is null)),
    words           integer not null default 0,
    frames          integer not null default 0,
    deficit         integer not null default 0,
    drops           integer not null default 0,
    late_ticks      integer not null default 0,
    missing         integer not null default 0,
    resumed         integer not null default 0,
    tick_mean_us    integer not null default 0,
    -- One byte for each frame and side, see `wire::api::sessions::Levels`.
    levels_caller   blob not null default x'',
    levels_agent    blob not null default x'',
    foreign key (persona_id, persona_version) references persona_version (persona_id, version)
) strict;

create index session_began on session (began_at_ms desc, id desc);
create index session_of_persona on session (persona_id, began_at_ms desc);
create index session_running on session (id) where ended_at_ms is null;

create table session_event (
    session_id integer not null references session (id) on delete cascade,
    number     integer not null,
    at_ms      integer not null,
    what       text not null,
    detail     text not null,
    primary key (session_id, number)
) strict, without rowid;

-- What the agent said. Pieces of one commit are one row, so that an hour of talk is some thousand rows and not more.
create table transcript (
    session_id  integer not null references session (id) on delete cascade,
    -- Of the first piece.
    frame       integer not null,
    -- JSON: [[frame, "text"], ...].
    pieces      text not null check (json_valid(pieces)),
    primary key (session_id, frame)
) strict, without rowid;

-- Audio files in the folder `recordings`, named by the session's number and the key. The row is written before the file
-- and deleted after it, so that no file is ever without a row.
create table recording (
    session_id    integer primary key references session (id) on delete restrict,
    -- Unguessable; lets the caller fetch the recording of the own call.
    key           text not null unique check (length(key) = 32),
    began_at_ms   integer not null,
    seconds       integer not null default 0,
    complete      integer not null default 0 check (complete in (0, 1))
) strict;

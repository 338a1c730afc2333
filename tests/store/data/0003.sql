BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE banks (
	user TEXT NOT NULL, 
	system TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	CONSTRAINT pk_banks PRIMARY KEY (user, system)
);
INSERT INTO "banks" VALUES('ana','rsum',4);
CREATE TABLE batches (
	number INTEGER NOT NULL, 
	user TEXT NOT NULL, 
	system TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	cause TEXT NOT NULL, 
	session TEXT, 
	state TEXT NOT NULL, 
	CONSTRAINT pk_batches PRIMARY KEY (number), 
	CONSTRAINT fk_batches_sessions FOREIGN KEY(user, session) REFERENCES sessions (user, id)
);
INSERT INTO "batches" VALUES(1,'ana','rsum','exchange','s1.1','s1','active');
INSERT INTO "batches" VALUES(2,'ana','rsum','session','s1','s1','active');
INSERT INTO "batches" VALUES(3,'ana','rsum','session','s2','s2','undone');
CREATE TABLE changes (
	batch INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	user TEXT NOT NULL, 
	system TEXT NOT NULL, 
	type TEXT NOT NULL, 
	time BIGINT NOT NULL, 
	unit TEXT, 
	other TEXT, 
	body TEXT NOT NULL, 
	CONSTRAINT pk_changes PRIMARY KEY (batch, position), 
	CONSTRAINT fk_changes_batches FOREIGN KEY(batch) REFERENCES batches (number)
)
 WITHOUT ROWID

;
INSERT INTO "changes" VALUES(1,0,'ana','rsum','add_unit',1772442000000000,'u1',NULL,'{"unit":{"id":"u1","text":"Ana lives in Łódź.","key":"key: Ana lives in Łódź.","kind":"sentence","speaker":"Ana","session":"s1","sources":["s1.0"],"time":"2026-03-02T18:00:00+09:00","learned":"2026-03-02T18:00:00+09:00"},"time":"2026-03-02T18:00:00+09:00","type":"add_unit"}');
INSERT INTO "changes" VALUES(2,0,'ana','rsum','add_unit',1772442000000000,'u2',NULL,'{"unit":{"id":"u2","text":"Ana moved.","key":"key: Ana moved.","kind":"sentence","speaker":"Ana","session":"s1","sources":["s1.0"],"time":"2026-03-02T18:00:00+09:00","learned":"2026-03-02T18:00:00+09:00"},"time":"2026-03-02T18:00:00+09:00","type":"add_unit"}');
INSERT INTO "changes" VALUES(2,1,'ana','rsum','add_link',1772442000000000,'u1','u2','{"link":{"source":"u1","target":"u2","relation":"cause","probability":0.5},"time":"2026-03-02T18:00:00+09:00","type":"add_link"}');
INSERT INTO "changes" VALUES(2,2,'ana','rsum','mark_unit',1772442000000000,'u1',NULL,'{"unit":"u1","mark":"recalled","value":2.0,"time":"2026-03-02T18:00:00+09:00","type":"mark_unit"}');
INSERT INTO "changes" VALUES(2,3,'ana','rsum','set_note',1772442000000000,NULL,NULL,'{"name":"summary","text":"Ana lives in Łódź.","time":"2026-03-02T18:00:00+09:00","type":"set_note"}');
INSERT INTO "changes" VALUES(3,0,'ana','rsum','add_unit',1772528400000000,'u3',NULL,'{"unit":{"id":"u3","text":"Ana lives in Gdynia.","key":"key: Ana lives in Gdynia.","kind":"sentence","speaker":"Ana","session":"s2","sources":["s2.0"],"time":"2026-03-02T18:00:00+09:00","learned":"2026-03-02T18:00:00+09:00"},"time":"2026-03-03T18:00:00+09:00","type":"add_unit"}');
INSERT INTO "changes" VALUES(3,1,'ana','rsum','retire_unit',1772528400000000,'u1','u3','{"unit":"u1","by":"u3","reason":"she moved","time":"2026-03-03T18:00:00+09:00","type":"retire_unit"}');
INSERT INTO "changes" VALUES(3,2,'ana','rsum','set_note',1772528400000000,NULL,NULL,'{"name":"summary","text":"Ana lives in Gdynia.","time":"2026-03-03T18:00:00+09:00","type":"set_note"}');
CREATE TABLE embeddings (
	digest TEXT NOT NULL, 
	identity TEXT NOT NULL, 
	vector BLOB NOT NULL, 
	CONSTRAINT pk_embeddings PRIMARY KEY (digest, identity)
);
INSERT INTO "embeddings" VALUES('0000000000000000000000000000000000000000000000000000000000000000','minilm-l6-v2@0123/4567',X'00000000000000000000000000000000');
CREATE TABLE encoder (
	number INTEGER NOT NULL, 
	identity TEXT NOT NULL, 
	dimension INTEGER NOT NULL, 
	CONSTRAINT pk_encoder PRIMARY KEY (number)
);
INSERT INTO "encoder" VALUES(1,'minilm-l6-v2@0123/4567',4);
CREATE TABLE jobs (
	user TEXT NOT NULL, 
	session TEXT NOT NULL, 
	system TEXT NOT NULL, 
	state TEXT NOT NULL, 
	attempts INTEGER NOT NULL, 
	error TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	CONSTRAINT pk_jobs PRIMARY KEY (user, session, system), 
	CONSTRAINT fk_jobs_sessions FOREIGN KEY(user, session) REFERENCES sessions (user, id)
);
INSERT INTO "jobs" VALUES('ana','s1','rsum','done',0,'','');
INSERT INTO "jobs" VALUES('ana','s2','rsum','done',0,'','');
INSERT INTO "jobs" VALUES('ana','s3','rsum','failed',1,'the model was missing','');
CREATE TABLE sessions (
	number INTEGER NOT NULL, 
	user TEXT NOT NULL, 
	id TEXT NOT NULL, 
	state TEXT NOT NULL, 
	position INTEGER NOT NULL, 
	started BIGINT NOT NULL, 
	ended BIGINT NOT NULL, 
	CONSTRAINT pk_sessions PRIMARY KEY (number), 
	CONSTRAINT uq_sessions_user_id UNIQUE (user, id)
);
INSERT INTO "sessions" VALUES(1,'ana','s1','closed',2,1772442000000000,1772442060000000);
INSERT INTO "sessions" VALUES(2,'ana','s2','closed',2,1772528400000000,1772528460000000);
INSERT INTO "sessions" VALUES(3,'ana','s3','closed',1,1772614800000000,1772614800000000);
INSERT INTO "sessions" VALUES(4,'ana','s4','open',1,1772701200000000,1772701200000000);
CREATE TABLE turns (
	user TEXT NOT NULL, 
	session TEXT NOT NULL, 
	position INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	role TEXT NOT NULL, 
	speaker TEXT NOT NULL, 
	text TEXT NOT NULL, 
	time BIGINT NOT NULL, 
	zone INTEGER NOT NULL, 
	CONSTRAINT pk_turns PRIMARY KEY (user, session, position), 
	CONSTRAINT uq_turns_user_id UNIQUE (user, id), 
	CONSTRAINT fk_turns_sessions FOREIGN KEY(user, session) REFERENCES sessions (user, id)
)
 WITHOUT ROWID

;
INSERT INTO "turns" VALUES('ana','s1',0,'s1.0','user','Ana','I moved to Łódź.',1772442000000000,32400);
INSERT INTO "turns" VALUES('ana','s1',1,'s1.1','assistant','Bot','Congratulations!',1772442060000000,32400);
INSERT INTO "turns" VALUES('ana','s2',0,'s2.0','user','Ana','I moved again, to Gdynia.',1772528400000000,32400);
INSERT INTO "turns" VALUES('ana','s2',1,'s2.1','assistant','Bot','Noted.',1772528460000000,32400);
INSERT INTO "turns" VALUES('ana','s3',0,'s3.0','user','Ana','Bye.',1772614800000000,32400);
INSERT INTO "turns" VALUES('ana','s4',0,'s4.0','user','Ana','Hello.',1772701200000000,32400);
CREATE INDEX ix_batches_user_system_number ON batches (user, system, number);
CREATE INDEX ix_batches_user_session ON batches (user, session);
CREATE UNIQUE INDEX uq_batches_active_cause ON batches (user, system, kind, cause) WHERE state = 'active';
CREATE INDEX ix_changes_user_system_unit ON changes (user, system, unit);
CREATE INDEX ix_changes_user_system_other ON changes (user, system, other);
CREATE INDEX ix_jobs_waiting ON jobs (state) WHERE state <> 'done';
CREATE INDEX ix_sessions_open ON sessions (user) WHERE state = 'open';
COMMIT;

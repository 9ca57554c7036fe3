-- The statements of a hold and a capture, as db/billing/ledger.py sends them, for pgbench.
\set account random(1, :workspaces)
\set number random(1, 9000000000000000)
BEGIN;
UPDATE account SET held = held + 1500 WHERE workspace_id = :account
  AND balance - held >= 1500 RETURNING balance;
INSERT INTO hold (operation, workspace_id, amount, service, expires_at)
  VALUES (:client_id || '-' || :number, :account, 1500, 'tts', now() + '15 minutes');
INSERT INTO ledger_entry (workspace_id, operation, kind, amount, held, balance_after, service,
  units, created_at) VALUES (:account, :client_id || '-' || :number, 'hold', 0, 1500, 0, 'tts', 0,
  now());
COMMIT;
BEGIN;
DELETE FROM hold WHERE operation = :client_id || '-' || :number RETURNING amount;
UPDATE account SET balance = balance - 1350, held = held - 1500 WHERE workspace_id = :account
  RETURNING balance;
INSERT INTO ledger_entry (workspace_id, operation, kind, amount, held, balance_after, service,
  units, created_at) VALUES (:account, :client_id || '-' || :number, 'capture', -1350, -1500, 0,
  'tts', 90, now());
COMMIT;

-- No question uses them: each is about one workspace and newest first, which audit_logs_by_workspace_and_time answers. Each change wrote to all of them.
DROP INDEX audit_logs_by_principal;
DROP INDEX audit_logs_by_user;
DROP INDEX audit_logs_by_action;
DROP INDEX audit_logs_by_result;

--- constraint annotations.annotations_pkey
ALTER TABLE recourse.annotations ADD CONSTRAINT annotations_pkey PRIMARY KEY (run_id)
--- constraint annotations.annotations_tenant_check
ALTER TABLE recourse.annotations ADD CONSTRAINT annotations_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint annotations.announced_end
ALTER TABLE recourse.annotations ADD CONSTRAINT announced_end CHECK (((ends_at IS NULL) OR announced)) NOT VALID
--- constraint annotations.hold_has_reason
ALTER TABLE recourse.annotations ADD CONSTRAINT hold_has_reason CHECK ((held = (hold_reason <> ''::text))) NOT VALID
--- constraint annotations.mark_has_reason
ALTER TABLE recourse.annotations ADD CONSTRAINT mark_has_reason CHECK ((((reprocess_eligible IS NULL) AND (manual_review_required IS NULL)) = (mark_reason = ''::text))) NOT VALID
--- constraint bulk_counts.bulk_counts_pkey
ALTER TABLE recourse.bulk_counts ADD CONSTRAINT bulk_counts_pkey PRIMARY KEY (bulk_id, ran, word, currency)
--- constraint bulk_items.bulk_items_pkey
ALTER TABLE recourse.bulk_items ADD CONSTRAINT bulk_items_pkey PRIMARY KEY (bulk_id, "position")
--- constraint bulk_items.bulk_items_position_check
ALTER TABLE recourse.bulk_items ADD CONSTRAINT bulk_items_position_check CHECK (("position" >= 1)) NOT VALID
--- constraint bulks.bulks_action_check
ALTER TABLE recourse.bulks ADD CONSTRAINT bulks_action_check CHECK ((action <> ''::text)) NOT VALID
--- constraint bulks.bulks_actor_check
ALTER TABLE recourse.bulks ADD CONSTRAINT bulks_actor_check CHECK ((actor <> ''::text)) NOT VALID
--- constraint bulks.bulks_hash_check
ALTER TABLE recourse.bulks ADD CONSTRAINT bulks_hash_check CHECK ((length(hash) = 32)) NOT VALID
--- constraint bulks.bulks_items_check
ALTER TABLE recourse.bulks ADD CONSTRAINT bulks_items_check CHECK ((items >= 0)) NOT VALID
--- constraint bulks.bulks_number_key
ALTER TABLE recourse.bulks ADD CONSTRAINT bulks_number_key UNIQUE (number)
--- constraint bulks.bulks_parallel_check
ALTER TABLE recourse.bulks ADD CONSTRAINT bulks_parallel_check CHECK ((parallel > 0)) NOT VALID
--- constraint bulks.bulks_people_check
ALTER TABLE recourse.bulks ADD CONSTRAINT bulks_people_check CHECK (((people >= 0) AND (people <= 2))) NOT VALID
--- constraint bulks.bulks_pkey
ALTER TABLE recourse.bulks ADD CONSTRAINT bulks_pkey PRIMARY KEY (id)
--- constraint bulks.bulks_reason_check
ALTER TABLE recourse.bulks ADD CONSTRAINT bulks_reason_check CHECK ((reason <> ''::text)) NOT VALID
--- constraint bulks.bulks_state_check
ALTER TABLE recourse.bulks ADD CONSTRAINT bulks_state_check CHECK ((state = ANY (ARRAY['planned'::text, 'running'::text, 'paused'::text, 'done'::text, 'cancelled'::text, 'refused'::text]))) NOT VALID
--- constraint bulks.bulks_tenant_check
ALTER TABLE recourse.bulks ADD CONSTRAINT bulks_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint bulks.bulks_throttle_check
ALTER TABLE recourse.bulks ADD CONSTRAINT bulks_throttle_check CHECK ((throttle >= 0)) NOT VALID
--- constraint bulks.ends_in_the_end
ALTER TABLE recourse.bulks ADD CONSTRAINT ends_in_the_end CHECK (((ended_at IS NOT NULL) = (state = ANY (ARRAY['done'::text, 'cancelled'::text, 'refused'::text])))) NOT VALID
--- constraint bulks.started_by_somebody
ALTER TABLE recourse.bulks ADD CONSTRAINT started_by_somebody CHECK (((started_at IS NOT NULL) = (started_by <> ''::text))) NOT VALID
--- constraint bulks.works_when_started
ALTER TABLE recourse.bulks ADD CONSTRAINT works_when_started CHECK (((started_at IS NOT NULL) OR (state = ANY (ARRAY['planned'::text, 'cancelled'::text, 'refused'::text])))) NOT VALID
--- constraint cases.cases_adjudication_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_adjudication_check CHECK ((adjudication = ANY (ARRAY[''::text, 'release'::text, 'refund'::text]))) NOT VALID
--- constraint cases.cases_asked_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_asked_check CHECK ((asked >= 0)) NOT VALID
--- constraint cases.cases_epoch_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_epoch_check CHECK ((epoch >= 0)) NOT VALID
--- constraint cases.cases_generation_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_generation_check CHECK ((generation >= 0)) NOT VALID
--- constraint cases.cases_kind_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_kind_check CHECK ((kind = ANY (ARRAY['settlement'::text, 'plain'::text, 'operations'::text]))) NOT VALID
--- constraint cases.cases_last_link_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_last_link_check CHECK ((length(last_link) = 32)) NOT VALID
--- constraint cases.cases_last_seq_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_last_seq_check CHECK ((last_seq >= 1)) NOT VALID
--- constraint cases.cases_lifecycle_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_lifecycle_check CHECK ((lifecycle = ANY (ARRAY[''::text, 'hold-active'::text, 're-escalated'::text]))) NOT VALID
--- constraint cases.cases_moved_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_moved_check CHECK ((moved >= 0)) NOT VALID
--- constraint cases.cases_pkey
ALTER TABLE recourse.cases ADD CONSTRAINT cases_pkey PRIMARY KEY (id)
--- constraint cases.cases_progression_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_progression_check CHECK ((progression = ANY (ARRAY[''::text, 'pending'::text, 'in-progress'::text, 'review-needed'::text, 'approved-for-settlement'::text, 'partially-settled'::text, 'settled'::text, 'dispute-ready'::text, 'refunded'::text]))) NOT VALID
--- constraint cases.cases_reason_code_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_reason_code_check CHECK ((reason_code = ANY (ARRAY[''::text, 'approve'::text, 'reject'::text, 'request-revision'::text, 'escalate'::text]))) NOT VALID
--- constraint cases.cases_refunded_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_refunded_check CHECK ((refunded >= 0)) NOT VALID
--- constraint cases.cases_released_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_released_check CHECK ((released >= 0)) NOT VALID
--- constraint cases.cases_reserved_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_reserved_check CHECK ((reserved >= 0)) NOT VALID
--- constraint cases.cases_subject_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_subject_check CHECK ((subject <> ''::text)) NOT VALID
--- constraint cases.cases_tenant_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint cases.cases_tenant_kind_subject_key
ALTER TABLE recourse.cases ADD CONSTRAINT cases_tenant_kind_subject_key UNIQUE (tenant, kind, subject)
--- constraint cases.cases_unknown_open_check
ALTER TABLE recourse.cases ADD CONSTRAINT cases_unknown_open_check CHECK ((unknown_open >= 0)) NOT VALID
--- constraint cases.operations_have_no_run
ALTER TABLE recourse.cases ADD CONSTRAINT operations_have_no_run CHECK (((kind = 'operations'::text) = (run_id IS NULL))) NOT VALID
--- constraint cases.returned_was_paid
ALTER TABLE recourse.cases ADD CONSTRAINT returned_was_paid CHECK (((returned >= 0) AND (returned <= (released + refunded)))) NOT VALID
--- constraint cases.settlement_has_escrow
ALTER TABLE recourse.cases ADD CONSTRAINT settlement_has_escrow CHECK (((kind = 'settlement'::text) = (escrow_id IS NOT NULL))) NOT VALID
--- constraint circuit_breakers.circuit_breakers_pkey
ALTER TABLE recourse.circuit_breakers ADD CONSTRAINT circuit_breakers_pkey PRIMARY KEY (family, target, tenant)
--- constraint circuit_breakers.circuit_breakers_state_check
ALTER TABLE recourse.circuit_breakers ADD CONSTRAINT circuit_breakers_state_check CHECK ((state = ANY (ARRAY['closed'::text, 'open'::text, 'half_open'::text]))) NOT VALID
--- constraint circuit_breakers.closing_after_opening
ALTER TABLE recourse.circuit_breakers ADD CONSTRAINT closing_after_opening CHECK ((recorded_closing <= recorded_opening)) NOT VALID
--- constraint escrow_deltas.escrow_deltas_delta_check
ALTER TABLE recourse.escrow_deltas ADD CONSTRAINT escrow_deltas_delta_check CHECK ((delta <> 0)) NOT VALID
--- constraint escrow_deltas.escrow_deltas_pkey
ALTER TABLE recourse.escrow_deltas ADD CONSTRAINT escrow_deltas_pkey PRIMARY KEY (escrow_id, case_id, seq)
--- constraint escrow_deltas.escrow_deltas_seq_check
ALTER TABLE recourse.escrow_deltas ADD CONSTRAINT escrow_deltas_seq_check CHECK ((seq >= 1)) NOT VALID
--- constraint escrows.conservation
ALTER TABLE recourse.escrows ADD CONSTRAINT conservation CHECK ((committed <= (held + breached))) NOT VALID
--- constraint escrows.escrows_breached_check
ALTER TABLE recourse.escrows ADD CONSTRAINT escrows_breached_check CHECK ((breached >= 0)) NOT VALID
--- constraint escrows.escrows_committed_check
ALTER TABLE recourse.escrows ADD CONSTRAINT escrows_committed_check CHECK ((committed >= 0)) NOT VALID
--- constraint escrows.escrows_currency_check
ALTER TABLE recourse.escrows ADD CONSTRAINT escrows_currency_check CHECK ((currency ~ '^[A-Z]{3}$'::text)) NOT VALID
--- constraint escrows.escrows_held_check
ALTER TABLE recourse.escrows ADD CONSTRAINT escrows_held_check CHECK (((held >= 1) AND (held <= '9007199254740991'::bigint))) NOT VALID
--- constraint escrows.escrows_pkey
ALTER TABLE recourse.escrows ADD CONSTRAINT escrows_pkey PRIMARY KEY (id)
--- constraint escrows.escrows_reference_check
ALTER TABLE recourse.escrows ADD CONSTRAINT escrows_reference_check CHECK ((reference <> ''::text)) NOT VALID
--- constraint escrows.escrows_tenant_check
ALTER TABLE recourse.escrows ADD CONSTRAINT escrows_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint escrows.escrows_tenant_reference_key
ALTER TABLE recourse.escrows ADD CONSTRAINT escrows_tenant_reference_key UNIQUE (tenant, reference)
--- constraint event_log.event_log_check
ALTER TABLE recourse.event_log ADD CONSTRAINT event_log_check CHECK ((tenant_last <= last)) NOT VALID
--- constraint event_log.event_log_pkey
ALTER TABLE recourse.event_log ADD CONSTRAINT event_log_pkey PRIMARY KEY (last)
--- constraint facet_group_days.facet_group_days_at_risk_check
ALTER TABLE recourse.facet_group_days ADD CONSTRAINT facet_group_days_at_risk_check CHECK ((at_risk >= (0)::numeric)) NOT VALID
--- constraint facet_group_days.facet_group_days_letters_check
ALTER TABLE recourse.facet_group_days ADD CONSTRAINT facet_group_days_letters_check CHECK ((letters > 0)) NOT VALID
--- constraint facet_group_days.facet_group_days_pkey
ALTER TABLE recourse.facet_group_days ADD CONSTRAINT facet_group_days_pkey PRIMARY KEY (facet_group, day)
--- constraint facet_groups.facet_groups_at_risk_check
ALTER TABLE recourse.facet_groups ADD CONSTRAINT facet_groups_at_risk_check CHECK ((at_risk >= (0)::numeric)) NOT VALID
--- constraint facet_groups.facet_groups_digest_check
ALTER TABLE recourse.facet_groups ADD CONSTRAINT facet_groups_digest_check CHECK ((length(digest) = 32)) NOT VALID
--- constraint facet_groups.facet_groups_digest_key
ALTER TABLE recourse.facet_groups ADD CONSTRAINT facet_groups_digest_key UNIQUE (digest)
--- constraint facet_groups.facet_groups_letters_check
ALTER TABLE recourse.facet_groups ADD CONSTRAINT facet_groups_letters_check CHECK ((letters >= 0)) NOT VALID
--- constraint facet_groups.facet_groups_pkey
ALTER TABLE recourse.facet_groups ADD CONSTRAINT facet_groups_pkey PRIMARY KEY (id)
--- constraint facet_groups.facet_groups_status_check
ALTER TABLE recourse.facet_groups ADD CONSTRAINT facet_groups_status_check CHECK ((status = ANY (ARRAY['open'::text, 'forked'::text, 'reconciled'::text, 'superseded'::text]))) NOT VALID
--- constraint facet_groups.facet_groups_tenant_check
ALTER TABLE recourse.facet_groups ADD CONSTRAINT facet_groups_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint handlers.handlers_pkey
ALTER TABLE recourse.handlers ADD CONSTRAINT handlers_pkey PRIMARY KEY (letter)
--- constraint handlers.handlers_run_key
ALTER TABLE recourse.handlers ADD CONSTRAINT handlers_run_key UNIQUE (run)
--- constraint handlers.handlers_tenant_check
ALTER TABLE recourse.handlers ADD CONSTRAINT handlers_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint installation.installation_one_check
ALTER TABLE recourse.installation ADD CONSTRAINT installation_one_check CHECK (one) NOT VALID
--- constraint installation.installation_pkey
ALTER TABLE recourse.installation ADD CONSTRAINT installation_pkey PRIMARY KEY (one)
--- constraint job_queues.job_queues_name_check
ALTER TABLE recourse.job_queues ADD CONSTRAINT job_queues_name_check CHECK ((name <> ''::text)) NOT VALID
--- constraint job_queues.job_queues_pkey
ALTER TABLE recourse.job_queues ADD CONSTRAINT job_queues_pkey PRIMARY KEY (tenant, name)
--- constraint job_queues.job_queues_tenant_check
ALTER TABLE recourse.job_queues ADD CONSTRAINT job_queues_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint keys.keys_created_by_check
ALTER TABLE recourse.keys ADD CONSTRAINT keys_created_by_check CHECK ((created_by <> ''::text)) NOT VALID
--- constraint keys.keys_digest_check
ALTER TABLE recourse.keys ADD CONSTRAINT keys_digest_check CHECK ((length(digest) = 32)) NOT VALID
--- constraint keys.keys_pkey
ALTER TABLE recourse.keys ADD CONSTRAINT keys_pkey PRIMARY KEY (id)
--- constraint keys.keys_prefix_check
ALTER TABLE recourse.keys ADD CONSTRAINT keys_prefix_check CHECK ((prefix ~ '^[0-9A-Za-z]{12}$'::text)) NOT VALID
--- constraint keys.keys_prefix_key
ALTER TABLE recourse.keys ADD CONSTRAINT keys_prefix_key UNIQUE (prefix)
--- constraint keys.keys_principal_check
ALTER TABLE recourse.keys ADD CONSTRAINT keys_principal_check CHECK ((principal <> ''::text)) NOT VALID
--- constraint keys.keys_roles_check
ALTER TABLE recourse.keys ADD CONSTRAINT keys_roles_check CHECK (((cardinality(roles) > 0) AND (roles <@ ARRAY['submitter'::text, 'worker'::text, 'operator'::text, 'approver'::text, 'auditor'::text, 'admin'::text, 'platform'::text]))) NOT VALID
--- constraint keys.keys_tenant_check
ALTER TABLE recourse.keys ADD CONSTRAINT keys_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint keys.revoked_by_somebody
ALTER TABLE recourse.keys ADD CONSTRAINT revoked_by_somebody CHECK (((revoked_at IS NOT NULL) = (revoked_by <> ''::text))) NOT VALID
--- constraint leases.leases_attempt_check
ALTER TABLE recourse.leases ADD CONSTRAINT leases_attempt_check CHECK ((attempt > 0)) NOT VALID
--- constraint leases.leases_ended_check
ALTER TABLE recourse.leases ADD CONSTRAINT leases_ended_check CHECK ((ended = ANY (ARRAY[''::text, 'visibility_timeout'::text, 'timeout'::text]))) NOT VALID
--- constraint leases.leases_fetch_key_check
ALTER TABLE recourse.leases ADD CONSTRAINT leases_fetch_key_check CHECK ((length(fetch_key) = 32)) NOT VALID
--- constraint leases.leases_length_ms_check
ALTER TABLE recourse.leases ADD CONSTRAINT leases_length_ms_check CHECK ((length_ms > 0)) NOT VALID
--- constraint leases.leases_limit_ms_check
ALTER TABLE recourse.leases ADD CONSTRAINT leases_limit_ms_check CHECK ((limit_ms >= 0)) NOT VALID
--- constraint leases.leases_pkey
ALTER TABLE recourse.leases ADD CONSTRAINT leases_pkey PRIMARY KEY (run_id)
--- constraint leases.leases_tenant_check
ALTER TABLE recourse.leases ADD CONSTRAINT leases_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint letters.letters_pkey
ALTER TABLE recourse.letters ADD CONSTRAINT letters_pkey PRIMARY KEY (run_id)
--- constraint letters.letters_tenant_check
ALTER TABLE recourse.letters ADD CONSTRAINT letters_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint lookups.lookups_answer_check
ALTER TABLE recourse.lookups ADD CONSTRAINT lookups_answer_check CHECK ((answer = ANY (ARRAY['executed'::text, 'not_executed'::text, 'unknown'::text]))) NOT VALID
--- constraint lookups.lookups_asked_check
ALTER TABLE recourse.lookups ADD CONSTRAINT lookups_asked_check CHECK ((asked > 0)) NOT VALID
--- constraint lookups.lookups_pkey
ALTER TABLE recourse.lookups ADD CONSTRAINT lookups_pkey PRIMARY KEY (run_id)
--- constraint lookups.lookups_tenant_check
ALTER TABLE recourse.lookups ADD CONSTRAINT lookups_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint lookups.waits_or_asks
ALTER TABLE recourse.lookups ADD CONSTRAINT waits_or_asks CHECK (((next_at IS NULL) = (waits_for <> ''::text))) NOT VALID
--- constraint operation_logs.operation_logs_case_id_key
ALTER TABLE recourse.operation_logs ADD CONSTRAINT operation_logs_case_id_key UNIQUE (case_id)
--- constraint operation_logs.operation_logs_pkey
ALTER TABLE recourse.operation_logs ADD CONSTRAINT operation_logs_pkey PRIMARY KEY (tenant, subject)
--- constraint operation_logs.operation_logs_subject_check
ALTER TABLE recourse.operation_logs ADD CONSTRAINT operation_logs_subject_check CHECK ((subject <> ''::text)) NOT VALID
--- constraint operation_logs.operation_logs_tenant_check
ALTER TABLE recourse.operation_logs ADD CONSTRAINT operation_logs_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint operations.operations_key_check
ALTER TABLE recourse.operations ADD CONSTRAINT operations_key_check CHECK ((length(key) = 32)) NOT VALID
--- constraint operations.operations_pkey
ALTER TABLE recourse.operations ADD CONSTRAINT operations_pkey PRIMARY KEY (key)
--- constraint operations.operations_request_check
ALTER TABLE recourse.operations ADD CONSTRAINT operations_request_check CHECK ((length(request) <= 65536)) NOT VALID
--- constraint outbox.outbox_pkey
ALTER TABLE recourse.outbox ADD CONSTRAINT outbox_pkey PRIMARY KEY (id)
--- constraint outbox.pairs
ALTER TABLE recourse.outbox ADD CONSTRAINT pairs CHECK (((cardinality(case_ids) = cardinality(seqs)) AND (cardinality(seqs) > 0))) NOT VALID
--- constraint people.people_actor_check
ALTER TABLE recourse.people ADD CONSTRAINT people_actor_check CHECK ((actor <> ''::text)) NOT VALID
--- constraint people.people_people_check
ALTER TABLE recourse.people ADD CONSTRAINT people_people_check CHECK ((people = ANY (ARRAY[1, 2]))) NOT VALID
--- constraint people.people_pkey
ALTER TABLE recourse.people ADD CONSTRAINT people_pkey PRIMARY KEY (tenant)
--- constraint people.people_reason_check
ALTER TABLE recourse.people ADD CONSTRAINT people_reason_check CHECK ((reason <> ''::text)) NOT VALID
--- constraint people.people_tenant_check
ALTER TABLE recourse.people ADD CONSTRAINT people_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint policies.policies_family_check
ALTER TABLE recourse.policies ADD CONSTRAINT policies_family_check CHECK ((family <> ''::text)) NOT VALID
--- constraint policies.policies_pkey
ALTER TABLE recourse.policies ADD CONSTRAINT policies_pkey PRIMARY KEY (tenant, family)
--- constraint policies.policies_tenant_check
ALTER TABLE recourse.policies ADD CONSTRAINT policies_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint policies.policies_version_check
ALTER TABLE recourse.policies ADD CONSTRAINT policies_version_check CHECK ((version >= 0)) NOT VALID
--- constraint projected.projected_last_check
ALTER TABLE recourse.projected ADD CONSTRAINT projected_last_check CHECK ((last >= 0)) NOT VALID
--- constraint projected.projected_pkey
ALTER TABLE recourse.projected ADD CONSTRAINT projected_pkey PRIMARY KEY (name)
--- constraint receipts.receipts_link_check
ALTER TABLE recourse.receipts ADD CONSTRAINT receipts_link_check CHECK ((length(link) = 32)) NOT VALID
--- constraint receipts.receipts_pkey
ALTER TABLE recourse.receipts ADD CONSTRAINT receipts_pkey PRIMARY KEY (case_id, seq)
--- constraint receipts.receipts_seq_check
ALTER TABLE recourse.receipts ADD CONSTRAINT receipts_seq_check CHECK ((seq >= 1)) NOT VALID
--- constraint requests.answered
ALTER TABLE recourse.requests ADD CONSTRAINT answered CHECK (((status IS NULL) = (body IS NULL))) NOT VALID
--- constraint requests.requests_digest_check
ALTER TABLE recourse.requests ADD CONSTRAINT requests_digest_check CHECK ((length(digest) = 32)) NOT VALID
--- constraint requests.requests_key_check
ALTER TABLE recourse.requests ADD CONSTRAINT requests_key_check CHECK ((key <> ''::text)) NOT VALID
--- constraint requests.requests_pkey
ALTER TABLE recourse.requests ADD CONSTRAINT requests_pkey PRIMARY KEY (tenant, key)
--- constraint requests.requests_tenant_check
ALTER TABLE recourse.requests ADD CONSTRAINT requests_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint returns.returns_amount_check
ALTER TABLE recourse.returns ADD CONSTRAINT returns_amount_check CHECK ((amount >= 1)) NOT VALID
--- constraint returns.returns_pkey
ALTER TABLE recourse.returns ADD CONSTRAINT returns_pkey PRIMARY KEY (tenant, reference)
--- constraint returns.returns_reference_check
ALTER TABLE recourse.returns ADD CONSTRAINT returns_reference_check CHECK ((reference <> ''::text)) NOT VALID
--- constraint returns.returns_seq_check
ALTER TABLE recourse.returns ADD CONSTRAINT returns_seq_check CHECK ((seq >= 1)) NOT VALID
--- constraint returns.returns_tenant_check
ALTER TABLE recourse.returns ADD CONSTRAINT returns_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint rule_replays.rule_replays_pkey
ALTER TABLE recourse.rule_replays ADD CONSTRAINT rule_replays_pkey PRIMARY KEY (root, rule)
--- constraint rule_replays.rule_replays_replays_check
ALTER TABLE recourse.rule_replays ADD CONSTRAINT rule_replays_replays_check CHECK ((replays >= 1)) NOT VALID
--- constraint rule_replays.rule_replays_rule_check
ALTER TABLE recourse.rule_replays ADD CONSTRAINT rule_replays_rule_check CHECK ((rule <> ''::text)) NOT VALID
--- constraint rule_replays.rule_replays_tenant_check
ALTER TABLE recourse.rule_replays ADD CONSTRAINT rule_replays_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint rules.deleted_is_off
ALTER TABLE recourse.rules ADD CONSTRAINT deleted_is_off CHECK ((NOT (deleted AND enabled))) NOT VALID
--- constraint rules.rules_name_check
ALTER TABLE recourse.rules ADD CONSTRAINT rules_name_check CHECK ((name <> ''::text)) NOT VALID
--- constraint rules.rules_pkey
ALTER TABLE recourse.rules ADD CONSTRAINT rules_pkey PRIMARY KEY (tenant, name)
--- constraint rules.rules_tenant_check
ALTER TABLE recourse.rules ADD CONSTRAINT rules_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint rules.rules_version_check
ALTER TABLE recourse.rules ADD CONSTRAINT rules_version_check CHECK ((version >= 0)) NOT VALID
--- constraint runs.active_is_state
ALTER TABLE recourse.runs ADD CONSTRAINT active_is_state CHECK ((active = (live OR (letter = 'open'::text)))) NOT VALID
--- constraint runs.budgets_in_attempts
ALTER TABLE recourse.runs ADD CONSTRAINT budgets_in_attempts CHECK ((((budget_spent + recoveries) + handed_back) <= attempt_count)) NOT VALID
--- constraint runs.cancel_has_actor
ALTER TABLE recourse.runs ADD CONSTRAINT cancel_has_actor CHECK ((cancel_requested = (cancel_by <> ''::text))) NOT VALID
--- constraint runs.death_has_time
ALTER TABLE recourse.runs ADD CONSTRAINT death_has_time CHECK (((dead_at IS NOT NULL) = (state = 'dead_lettered'::text))) NOT VALID
--- constraint runs.discarded_moves_nothing
ALTER TABLE recourse.runs ADD CONSTRAINT discarded_moves_nothing CHECK (((state <> 'discarded'::text) OR (operation_key IS NULL))) NOT VALID
--- constraint runs.letter_is_death
ALTER TABLE recourse.runs ADD CONSTRAINT letter_is_death CHECK (((letter <> ''::text) = (state = 'dead_lettered'::text))) NOT VALID
--- constraint runs.live_is_state
ALTER TABLE recourse.runs ADD CONSTRAINT live_is_state CHECK ((live = (state = ANY (ARRAY['pending'::text, 'running'::text, 'scheduled'::text])))) NOT VALID
--- constraint runs.only_remote
ALTER TABLE recourse.runs ADD CONSTRAINT only_remote CHECK ((remote OR ((priority = 0) AND (expires_at IS NULL) AND (handed_back = 0) AND (output IS NULL)))) NOT VALID
--- constraint runs.output_is_bounded
ALTER TABLE recourse.runs ADD CONSTRAINT output_is_bounded CHECK ((length(output) <= 65536)) NOT VALID
--- constraint runs.runs_attempt_count_check
ALTER TABLE recourse.runs ADD CONSTRAINT runs_attempt_count_check CHECK ((attempt_count >= 0)) NOT VALID
--- constraint runs.runs_budget_spent_check
ALTER TABLE recourse.runs ADD CONSTRAINT runs_budget_spent_check CHECK ((budget_spent >= 0)) NOT VALID
--- constraint runs.runs_class_check
ALTER TABLE recourse.runs ADD CONSTRAINT runs_class_check CHECK ((class = ANY (ARRAY[''::text, 'executed'::text, 'not_executed'::text, 'unknown'::text]))) NOT VALID
--- constraint runs.runs_letter_check
ALTER TABLE recourse.runs ADD CONSTRAINT runs_letter_check CHECK ((letter = ANY (ARRAY[''::text, 'open'::text, 'forked'::text, 'reconciled'::text, 'superseded'::text, 'purged'::text]))) NOT VALID
--- constraint runs.runs_operation_key_check
ALTER TABLE recourse.runs ADD CONSTRAINT runs_operation_key_check CHECK ((length(operation_key) = 32)) NOT VALID
--- constraint runs.runs_payload_check
ALTER TABLE recourse.runs ADD CONSTRAINT runs_payload_check CHECK ((length(payload) <=
CASE
    WHEN remote THEN 1114112
    ELSE 65536
END)) NOT VALID
--- constraint runs.runs_pkey
ALTER TABLE recourse.runs ADD CONSTRAINT runs_pkey PRIMARY KEY (id)
--- constraint runs.runs_recoveries_check
ALTER TABLE recourse.runs ADD CONSTRAINT runs_recoveries_check CHECK ((recoveries >= 0)) NOT VALID
--- constraint runs.runs_state_check
ALTER TABLE recourse.runs ADD CONSTRAINT runs_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'running'::text, 'scheduled'::text, 'succeeded'::text, 'dead_lettered'::text, 'discarded'::text, 'cancelled'::text]))) NOT VALID
--- constraint runs.runs_tenant_check
ALTER TABLE recourse.runs ADD CONSTRAINT runs_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint sessions.sessions_pkey
ALTER TABLE recourse.sessions ADD CONSTRAINT sessions_pkey PRIMARY KEY (id)
--- constraint short_substrings.short_substrings_pkey
ALTER TABLE recourse.short_substrings ADD CONSTRAINT short_substrings_pkey PRIMARY KEY (tenant, constant)
--- constraint short_substrings.short_substrings_tenant_check
ALTER TABLE recourse.short_substrings ADD CONSTRAINT short_substrings_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint targets.targets_breaker_check
ALTER TABLE recourse.targets ADD CONSTRAINT targets_breaker_check CHECK ((breaker <> ''::text)) NOT VALID
--- constraint targets.targets_name_check
ALTER TABLE recourse.targets ADD CONSTRAINT targets_name_check CHECK ((name <> ''::text)) NOT VALID
--- constraint targets.targets_pkey
ALTER TABLE recourse.targets ADD CONSTRAINT targets_pkey PRIMARY KEY (family, name)
--- constraint unique_jobs.unique_jobs_fingerprint_check
ALTER TABLE recourse.unique_jobs ADD CONSTRAINT unique_jobs_fingerprint_check CHECK ((length(fingerprint) = 32)) NOT VALID
--- constraint unique_jobs.unique_jobs_pkey
ALTER TABLE recourse.unique_jobs ADD CONSTRAINT unique_jobs_pkey PRIMARY KEY (tenant, fingerprint, case_id)
--- constraint unique_jobs.unique_jobs_tenant_check
ALTER TABLE recourse.unique_jobs ADD CONSTRAINT unique_jobs_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint webhook_positions.pending_is_bounded
ALTER TABLE recourse.webhook_positions ADD CONSTRAINT pending_is_bounded CHECK ((cardinality(pending) <= 1000)) NOT VALID
--- constraint webhook_positions.webhook_positions_pkey
ALTER TABLE recourse.webhook_positions ADD CONSTRAINT webhook_positions_pkey PRIMARY KEY (webhook_id)
--- constraint webhook_positions.webhook_positions_read_to_check
ALTER TABLE recourse.webhook_positions ADD CONSTRAINT webhook_positions_read_to_check CHECK ((read_to >= 0)) NOT VALID
--- constraint webhook_positions.webhook_positions_tenant_check
ALTER TABLE recourse.webhook_positions ADD CONSTRAINT webhook_positions_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint webhook_positions.webhook_positions_version_check
ALTER TABLE recourse.webhook_positions ADD CONSTRAINT webhook_positions_version_check CHECK ((version >= 1)) NOT VALID
--- constraint webhooks.deleted_has_no_secret
ALTER TABLE recourse.webhooks ADD CONSTRAINT deleted_has_no_secret CHECK (((state = 'deleted'::text) = (secret IS NULL))) NOT VALID
--- constraint webhooks.former_secret_ends
ALTER TABLE recourse.webhooks ADD CONSTRAINT former_secret_ends CHECK (((former_secret IS NULL) = (former_until IS NULL))) NOT VALID
--- constraint webhooks.webhooks_pkey
ALTER TABLE recourse.webhooks ADD CONSTRAINT webhooks_pkey PRIMARY KEY (id)
--- constraint webhooks.webhooks_state_check
ALTER TABLE recourse.webhooks ADD CONSTRAINT webhooks_state_check CHECK ((state = ANY (ARRAY['active'::text, 'paused'::text, 'deleted'::text]))) NOT VALID
--- constraint webhooks.webhooks_tenant_check
ALTER TABLE recourse.webhooks ADD CONSTRAINT webhooks_tenant_check CHECK ((tenant <> ''::text)) NOT VALID
--- constraint webhooks.webhooks_version_check
ALTER TABLE recourse.webhooks ADD CONSTRAINT webhooks_version_check CHECK ((version >= 1)) NOT VALID
--- function check_opened_case()
CREATE OR REPLACE FUNCTION recourse.check_opened_case()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF NEW.kind = 'operations' OR octet_length(NEW.tenant) > 512 OR octet_length(NEW.subject) > 512 OR octet_length(NEW.submission) > 512 OR NOT isfinite(coalesce(NEW.first_sent_at, now())) THEN
        RAISE EXCEPTION 'recourse: the role % may open cases, and no case that no submission opens', current_user USING ERRCODE = '42501';
    END IF;
    RETURN NEW;
END $function$
--- function check_opened_place()
CREATE OR REPLACE FUNCTION recourse.check_opened_place()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF cardinality(NEW.seqs) <> 1 OR NEW.seqs[1] IS DISTINCT FROM 1
      OR NOT EXISTS (SELECT FROM recourse.receipts r WHERE r.case_id = NEW.case_ids[1] AND r.seq = 1 AND r.tenant = NEW.tenant) THEN
        RAISE EXCEPTION 'recourse: the role % may open cases, and give no place in the order of events to anything else', current_user USING ERRCODE = '42501';
    END IF;
    RETURN NULL;
END $function$
--- function check_opened_run()
CREATE OR REPLACE FUNCTION recourse.check_opened_run()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF NEW.state <> 'pending' OR NEW.attempt_count > 0 OR NEW.class <> '' OR NEW.cancel_requested OR NOT isfinite(NEW.due_at) OR NOT isfinite(coalesce(NEW.expires_at, NEW.due_at))
      OR NEW.family !~ '[!-~]' OR NEW.queue !~ '[!-~]'
      OR octet_length(NEW.tenant) > 512 OR octet_length(NEW.family) > 512 OR octet_length(NEW.retry_key) > 512 OR octet_length(NEW.queue) > 512 OR octet_length(NEW.target) > 512 THEN
        RAISE EXCEPTION 'recourse: the role % may open runs that wait for their first attempt, and no other', current_user USING ERRCODE = '42501';
    END IF;
    RETURN NEW;
END $function$
--- function count_letters()
CREATE OR REPLACE FUNCTION recourse.count_letters()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF TG_OP = 'DELETE' THEN
        UPDATE recourse.facet_groups s SET letters = s.letters - d.n, at_risk = s.at_risk - d.risk, attempts = s.attempts - d.tries
        FROM (SELECT facet_group, count(*) AS n, sum(at_risk) AS risk, sum(attempts) AS tries FROM before_rows GROUP BY facet_group) d WHERE s.id = d.facet_group;
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        UPDATE recourse.facet_groups s SET letters = s.letters - d.n, at_risk = s.at_risk - d.risk, attempts = s.attempts - d.tries
        FROM (SELECT facet_group, sum(n) AS n, sum(risk) AS risk, sum(tries) AS tries FROM (
                SELECT facet_group, 1 AS n, at_risk AS risk, attempts AS tries FROM before_rows UNION ALL SELECT facet_group, -1, -at_risk, -attempts FROM after_rows) u
              GROUP BY facet_group HAVING sum(n) <> 0 OR sum(risk) <> 0 OR sum(tries) <> 0) d
        WHERE s.id = d.facet_group;
    END IF;
    UPDATE recourse.facet_groups s
    SET letters = s.letters + d.n, at_risk = s.at_risk + d.risk, attempts = s.attempts + d.tries,
      first_dead = least(s.first_dead, d.first_dead), last_dead = greatest(s.last_dead, d.last_dead),
      first_seen = least(s.first_seen, d.first_seen), last_seen = greatest(s.last_seen, d.last_seen),
      least_amount = least(s.least_amount, d.least_amount), most_amount = greatest(s.most_amount, d.most_amount),
      least_attempts = least(s.least_attempts, d.least_attempts), most_attempts = greatest(s.most_attempts, d.most_attempts),
      most_lag = greatest(s.most_lag, d.most_lag)
    FROM (SELECT facet_group, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE 0 END AS n, CASE TG_OP WHEN 'INSERT' THEN sum(at_risk) ELSE 0 END AS risk,
            CASE TG_OP WHEN 'INSERT' THEN sum(attempts) ELSE 0 END AS tries,
            (extract(epoch FROM min(dead_at)) * 1000000)::bigint AS first_dead, (extract(epoch FROM max(dead_at)) * 1000000)::bigint AS last_dead,
            (extract(epoch FROM min(last_seen_at)) * 1000000)::bigint AS first_seen, (extract(epoch FROM max(last_seen_at)) * 1000000)::bigint AS last_seen,
            min(amount) AS least_amount, max(amount) AS most_amount, min(attempts) AS least_attempts, max(attempts) AS most_attempts,
            (extract(epoch FROM max(last_seen_at - dead_at)) * 1000000)::bigint AS most_lag
          FROM after_rows GROUP BY facet_group) d
    WHERE s.id = d.facet_group AND (d.n > 0 OR s.first_dead IS NULL OR d.first_dead < s.first_dead OR d.last_dead > s.last_dead OR d.first_seen < s.first_seen OR d.last_seen > s.last_seen
      OR d.least_amount < s.least_amount OR d.most_amount > s.most_amount OR d.least_attempts < s.least_attempts OR d.most_attempts > s.most_attempts OR d.most_lag > s.most_lag);
    RETURN NULL;
END $function$
--- function count_letters_by_day()
CREATE OR REPLACE FUNCTION recourse.count_letters_by_day()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO recourse.facet_group_days AS s
        SELECT facet_group, floor(extract(epoch FROM dead_at) / 86400)::int, count(*), sum(at_risk), sum(attempts) FROM after_rows GROUP BY 1, 2
        ON CONFLICT (facet_group, day) DO UPDATE SET letters = s.letters + excluded.letters, at_risk = s.at_risk + excluded.at_risk, attempts = s.attempts + excluded.attempts;
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        MERGE INTO recourse.facet_group_days s
        USING (SELECT facet_group, floor(extract(epoch FROM dead_at) / 86400)::int AS day, sum(n) AS n, sum(risk) AS risk, sum(tries) AS tries FROM (
                 SELECT facet_group, dead_at, 1 AS n, at_risk AS risk, attempts AS tries FROM after_rows
                 UNION ALL SELECT facet_group, dead_at, -1, -at_risk, -attempts FROM before_rows) u
               GROUP BY 1, 2 HAVING sum(n) <> 0 OR sum(risk) <> 0 OR sum(tries) <> 0) d ON s.facet_group = d.facet_group AND s.day = d.day
        WHEN MATCHED AND s.letters + d.n = 0 THEN DELETE
        WHEN MATCHED THEN UPDATE SET letters = s.letters + d.n, at_risk = s.at_risk + d.risk, attempts = s.attempts + d.tries
        WHEN NOT MATCHED AND d.n > 0 THEN INSERT VALUES (d.facet_group, d.day, d.n, d.risk, d.tries);
        RETURN NULL;
    END IF;
    MERGE INTO recourse.facet_group_days s
    USING (SELECT facet_group, floor(extract(epoch FROM dead_at) / 86400)::int AS day, count(*) AS n, sum(at_risk) AS risk, sum(attempts) AS tries
           FROM before_rows GROUP BY 1, 2) d ON s.facet_group = d.facet_group AND s.day = d.day
    WHEN MATCHED AND s.letters = d.n THEN DELETE
    WHEN MATCHED THEN UPDATE SET letters = s.letters - d.n, at_risk = s.at_risk - d.risk, attempts = s.attempts - d.tries;
    RETURN NULL;
END $function$
--- function forget_short_substrings()
CREATE OR REPLACE FUNCTION recourse.forget_short_substrings()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF current_setting('recourse.short_substrings', true) IS DISTINCT FROM 'stored' THEN
        INSERT INTO recourse.short_substrings AS t (tenant, constant)
        SELECT DISTINCT s.tenant, s.constant FROM after_rows a JOIN recourse.facet_groups s ON s.id = a.facet_group WHERE NOT s.whole
        ON CONFLICT (tenant, constant) DO UPDATE SET substrings = NULL WHERE t.substrings IS NOT NULL;
    END IF;
    RETURN NULL;
END $function$
--- function refuse_append()
CREATE OR REPLACE FUNCTION recourse.refuse_append()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'recourse: the role % may open cases, and add no receipt but the first of one that it opens', current_user USING ERRCODE = '42501';
END $function$
--- function refuse_change()
CREATE OR REPLACE FUNCTION recourse.refuse_change()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'recourse: what a row of % was made with is never changed', TG_TABLE_NAME USING ERRCODE = '42501';
END $function$
--- function refuse_other_sum()
CREATE OR REPLACE FUNCTION recourse.refuse_other_sum()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF EXISTS (SELECT FROM recourse.cases c WHERE c.escrow_id = OLD.id) THEN
        RAISE EXCEPTION 'recourse: what an escrow holds is never changed once a case names it' USING ERRCODE = '42501';
    END IF;
    RETURN NULL;
END $function$
--- function refuse_payload()
CREATE OR REPLACE FUNCTION recourse.refuse_payload()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF current_setting('recourse.erasing', true) IS DISTINCT FROM 'purged' THEN
        RAISE EXCEPTION 'recourse: the payload of a run is never changed' USING ERRCODE = '42501';
    END IF;
    RETURN NULL;
END $function$
--- function refuse_removal()
CREATE OR REPLACE FUNCTION recourse.refuse_removal()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'recourse: rows of % are never removed', TG_TABLE_NAME USING ERRCODE = '42501';
END $function$
--- function refuse_rewrite()
CREATE OR REPLACE FUNCTION recourse.refuse_rewrite()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'recourse: % is append-only', TG_TABLE_NAME USING ERRCODE = '42501';
END $function$
--- index bulks_made_for
CREATE UNIQUE INDEX bulks_made_for ON recourse.bulks USING btree (tenant, made_for) WHERE (made_for <> ''::text)
--- index event_log_tenant_last
CREATE UNIQUE INDEX event_log_tenant_last ON recourse.event_log USING btree (tenant, COALESCE(tenant_last, last))
--- index runs_key
CREATE UNIQUE INDEX runs_key ON recourse.runs USING btree (tenant, family, retry_key) WHERE active
--- index runs_one_case
CREATE UNIQUE INDEX runs_one_case ON recourse.runs USING btree (case_id) WHERE active
--- index unique_jobs_case
CREATE UNIQUE INDEX unique_jobs_case ON recourse.unique_jobs USING btree (case_id)
--- trigger letters.counts_days_delete
CREATE OR REPLACE TRIGGER counts_days_delete AFTER DELETE ON recourse.letters REFERENCING OLD TABLE AS before_rows FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters_by_day(); ALTER TABLE recourse.letters ENABLE TRIGGER counts_days_delete
--- trigger letters.counts_days_insert
CREATE OR REPLACE TRIGGER counts_days_insert AFTER INSERT ON recourse.letters REFERENCING NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters_by_day(); ALTER TABLE recourse.letters ENABLE TRIGGER counts_days_insert
--- trigger letters.counts_days_update
CREATE OR REPLACE TRIGGER counts_days_update AFTER UPDATE ON recourse.letters REFERENCING OLD TABLE AS before_rows NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters_by_day(); ALTER TABLE recourse.letters ENABLE TRIGGER counts_days_update
--- trigger letters.counts_delete
CREATE OR REPLACE TRIGGER counts_delete AFTER DELETE ON recourse.letters REFERENCING OLD TABLE AS before_rows FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters(); ALTER TABLE recourse.letters ENABLE TRIGGER counts_delete
--- trigger letters.counts_insert
CREATE OR REPLACE TRIGGER counts_insert AFTER INSERT ON recourse.letters REFERENCING NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters(); ALTER TABLE recourse.letters ENABLE TRIGGER counts_insert
--- trigger letters.counts_update
CREATE OR REPLACE TRIGGER counts_update AFTER UPDATE ON recourse.letters REFERENCING OLD TABLE AS before_rows NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters(); ALTER TABLE recourse.letters ENABLE TRIGGER counts_update
--- trigger letters.forgets_on_insert
CREATE OR REPLACE TRIGGER forgets_on_insert AFTER INSERT ON recourse.letters REFERENCING NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION recourse.forget_short_substrings(); ALTER TABLE recourse.letters ENABLE TRIGGER forgets_on_insert
--- trigger letters.forgets_on_update
CREATE OR REPLACE TRIGGER forgets_on_update AFTER UPDATE ON recourse.letters REFERENCING NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION recourse.forget_short_substrings(); ALTER TABLE recourse.letters ENABLE TRIGGER forgets_on_update

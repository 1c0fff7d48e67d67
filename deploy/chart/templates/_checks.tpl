{{/* What would lose jobs or let strangers in is refused, with the cure. */}}
{{- define "pacer.checks" -}}
{{- if not .Values.pacer }}
{{- fail "the chart's own defaults are missing, as with `helm upgrade --reuse-values` over a release of another chart. Use --reset-then-reuse-values, or --values with your file" }}
{{- end }}
{{- if and (not .Values.enableLeaderElection) (gt (int .Values.replicaCount) 1) }}
{{- fail (printf "enableLeaderElection is false and replicaCount is %d: all replicas would act at once and delete each other's runners. Set enableLeaderElection=true, or replicaCount=1" (int .Values.replicaCount)) }}
{{- end }}
{{- if and (not .Values.enableLeaderElection) (gt (int .Values.pacer.shards) 1) }}
{{- fail (printf "enableLeaderElection is false and pacer.shards is %d: nothing would say which replica acts for which shard. Set enableLeaderElection=true, or pacer.shards=1" (int .Values.pacer.shards)) }}
{{- end }}
{{- if and .Values.scope.watchNamespace (not .Values.scope.singleNamespace) }}
{{- fail (printf "scope.watchNamespace is %q and scope.singleNamespace is false: all namespaces would be served. Set scope.singleNamespace=true, or leave scope.watchNamespace empty" .Values.scope.watchNamespace) }}
{{- end }}
{{- $server := .Values.githubWebhookServer }}
{{- if and $server.enabled (not (include "pacer.webhookSecretSource" .)) }}
{{- $name := include "pacer.webhookSecretName" . }}
{{- fail (printf "githubWebhookServer has no webhook secret: anyone who can reach it could start runners. If Secret %q with key github_webhook_secret_token exists in namespace %q, set githubWebhookServer.secret.enabled=true. To have it made, set githubWebhookServer.secret.create=true and githubWebhookServer.secret.github_webhook_secret_token. Or give GITHUB_WEBHOOK_SECRET_TOKEN in githubWebhookServer.env" $name (include "pacer.namespace" .)) }}
{{- end }}
{{- if and .Values.actionsMetricsServer.enabled (not (include "pacer.actionsMetricsSecretSource" .)) }}
{{- if or (not $server.enabled) .Values.actionsMetricsServer.secret.create }}
{{- $name := include "pacer.actionsMetricsSecretName" . }}
{{- fail (printf "actionsMetricsServer has no webhook secret: anyone who can reach it could start runners. If Secret %q with key github_webhook_secret_token exists in namespace %q, set actionsMetricsServer.secret.enabled=true. To have it made, set actionsMetricsServer.secret.create=true and actionsMetricsServer.secret.github_webhook_secret_token" $name (include "pacer.namespace" .)) }}
{{- end }}
{{- end }}
{{- if and (include "pacer.receives" .) (eq (include "pacer.deploymentName" .) (include "pacer.webhookDeploymentName" .)) }}
{{- fail (printf "the release's name is so long that the operator and the webhook server would both be called %q. Set githubWebhookServer.fullnameOverride, or fullnameOverride" (include "pacer.deploymentName" .)) }}
{{- end }}
{{- $ui := .Values.pacer.ui }}
{{- if and $ui.service.create (not (and $ui.enabled $ui.tokenSecret.name)) }}
{{- fail "pacer.ui.service.create is true, and the page has no token: anyone who can reach the Service could see it. Set pacer.ui.enabled=true and pacer.ui.tokenSecret.name to a Secret with at least 16 random characters under the key token, or leave the Service out and use kubectl port-forward" }}
{{- end }}
{{- if and .Values.pacer.metrics.authorization (not .Values.pacer.metrics.tls.enabled) }}
{{- fail "pacer.metrics.authorization is true and pacer.metrics.tls.enabled is false: the tokens of those who scrape would travel in plain text. Set pacer.metrics.tls.enabled=true, or pacer.metrics.authorization=false" }}
{{- end }}
{{- if and .Values.authSecret.create (not .Values.authSecret.enabled) }}
{{- fail "authSecret.create is true and authSecret.enabled is false: the operator would not read the Secret that is made. Set authSecret.enabled=true, or authSecret.create=false" }}
{{- end }}
{{- end }}

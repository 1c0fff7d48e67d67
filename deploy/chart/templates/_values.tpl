{{/* A value as text: a whole number without a decimal point or an exponent, nothing for null. */}}
{{- define "pacer.text" -}}
{{- if kindIs "invalid" . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}{{ printf "%.0f" . }}
{{- else }}{{ toString . }}
{{- end }}
{{- end }}

{{/* The ConfigMap with the tenancy; nothing without one. */}}
{{- define "pacer.tenancy" -}}
{{- with .Values.pacer.tenancy.configMap }}{{ include "pacer.text" . }}{{ end }}
{{- end }}

{{/* A ServiceMonitor's values: ARC's were a boolean at first and a map later. */}}
{{- define "pacer.serviceMonitor" -}}
{{- if kindIs "map" . }}{{ toYaml . }}{{ else }}{{ toYaml (dict "enable" (eq (include "pacer.text" .) "true")) }}{{ end }}
{{- end }}

{{/* Variables of a container: `own`, then `user` (a map or a list), which takes the place of what has the same name. */}}
{{- define "pacer.env" -}}
{{- $user := list }}
{{- if kindIs "slice" .user }}
{{- range .user }}
{{- $user = append $user (ternary (merge (dict "value" (include "pacer.text" .value)) (omit . "value")) . (hasKey . "value")) }}
{{- end }}
{{- else if kindIs "map" .user }}
{{- range $name, $value := .user }}
{{- if kindIs "map" $value }}{{ $user = append $user (merge (dict "name" $name) $value) }}
{{- else }}{{ $user = append $user (dict "name" $name "value" (include "pacer.text" $value)) }}
{{- end }}
{{- end }}
{{- end }}
{{- $names := list }}
{{- range $user }}{{ $names = append $names .name }}{{ end }}
{{- $all := list }}
{{- range .own }}{{ if not (has .name $names) }}{{ $all = append $all . }}{{ end }}{{ end }}
{{- toYaml (concat $all $user) }}
{{- end }}

{{/* Whether variables of this name are given. Takes `env` (a map or a list) and `name`. */}}
{{- define "pacer.hasVariable" -}}
{{- $name := .name }}
{{- if kindIs "slice" .env }}{{ range .env }}{{ if eq .name $name }}true{{ end }}{{ end }}
{{- else if kindIs "map" .env }}{{ if hasKey .env $name }}true{{ end }}
{{- end }}
{{- end }}

{{/* Variables with addresses of GitHub, as a YAML list. */}}
{{- define "pacer.addresses" -}}
{{- $env := list }}
{{- with .Values.githubEnterpriseServerURL }}{{ $env = append $env (dict "name" "GITHUB_ENTERPRISE_URL" "value" .) }}{{ end }}
{{- with .Values.githubURL }}{{ $env = append $env (dict "name" "GITHUB_URL" "value" .) }}{{ end }}
{{- with .Values.githubUploadURL }}{{ $env = append $env (dict "name" "GITHUB_UPLOAD_URL" "value" .) }}{{ end }}
{{- toYaml $env }}
{{- end }}

{{/* Variables with credentials of a Secret, by optional references. Takes `secret` and `keys`. */}}
{{- define "pacer.credentials" -}}
{{- $secret := .secret }}
{{- $env := list }}
{{- range .keys }}
{{- $env = append $env (dict "name" (upper .) "valueFrom" (dict "secretKeyRef" (dict "name" $secret "key" . "optional" true))) }}
{{- end }}
{{- toYaml $env }}
{{- end }}

{{/* Variables for basic auth: the user's name from the values, as in ARC's chart, or from the Secret where they have none; the password from the Secret. */}}
{{- define "pacer.basicAuth" -}}
{{- $keys := list "github_basicauth_username" "github_basicauth_password" }}
{{- $env := include "pacer.credentials" (dict "secret" (include "pacer.authSecretName" .) "keys" $keys) | fromYamlArray }}
{{- with include "pacer.text" .Values.authSecret.github_basicauth_username }}
{{- $env = list (dict "name" "GITHUB_BASICAUTH_USERNAME" "value" .) (index $env 1) }}
{{- end }}
{{- toYaml $env }}
{{- end }}

{{/* Annotations of a pod. Where they name the container that ARC's pod had, they name ours. Takes `container` and `annotations`. */}}
{{- define "pacer.podAnnotations" -}}
{{- $annotations := dict "kubectl.kubernetes.io/default-container" .container }}
{{- range $key, $value := .annotations }}
{{- $names := has $key (list "kubectl.kubernetes.io/default-container" "kubectl.kubernetes.io/default-logs-container") }}
{{- $_ := set $annotations $key (ternary $.container $value (and $names (has $value (list "manager" "github-webhook-server")))) }}
{{- end }}
{{- toYaml $annotations }}
{{- end }}

{{/* Data of a Secret: `values` of those `keys` that are set. */}}
{{- define "pacer.secretData" -}}
{{- $values := .values }}
{{- $data := dict }}
{{- range .keys }}
{{- $text := include "pacer.text" (get $values .) }}
{{- if $text }}{{ $_ := set $data . ($text | b64enc) }}{{ end }}
{{- end }}
{{- toYaml $data }}
{{- end }}

{{/* The bounds of a PodDisruptionBudget. */}}
{{- define "pacer.disruption" -}}
{{- $minimum := include "pacer.text" .minAvailable }}
{{- $maximum := include "pacer.text" .maxUnavailable }}
{{- if $minimum }}minAvailable: {{ $minimum }}
{{- else }}maxUnavailable: {{ default "1" $maximum }}
{{- end }}
{{- end }}

{{/* Whether the webhook server runs: ARC's metrics server is part of it. */}}
{{- define "pacer.receives" -}}
{{- if or .Values.githubWebhookServer.enabled .Values.actionsMetricsServer.enabled }}true{{ end }}
{{- end }}

{{/* Where the webhook's secret comes from, for each of ARC's two servers: `file`, `variable`, or nothing. */}}
{{- define "pacer.webhookSecretSource" -}}
{{- $server := .Values.githubWebhookServer }}
{{- if include "pacer.hasVariable" (dict "env" $server.env "name" "GITHUB_WEBHOOK_SECRET_TOKEN") }}variable
{{- else if $server.secret.create }}{{ if $server.secret.github_webhook_secret_token }}file{{ end }}
{{- else if $server.secret.enabled }}file
{{- end }}
{{- end }}

{{- define "pacer.actionsMetricsSecretSource" -}}
{{- $secret := .Values.actionsMetricsServer.secret }}
{{- if not .Values.actionsMetricsServer.enabled }}
{{- else if $secret.create }}{{ if $secret.github_webhook_secret_token }}file{{ end }}
{{- else if $secret.enabled }}file
{{- end }}
{{- end }}

{{/* Lifecycle of the webhook server's container: what would run a program is replaced by a pause. */}}
{{- define "pacer.lifecycle" -}}
{{- $pause := dict "sleep" (dict "seconds" 5) }}
{{- $given := deepCopy (default dict .Values.githubWebhookServer.lifecycle) }}
{{- if hasKey (default dict (get $given "postStart")) "exec" }}{{ $_ := unset $given "postStart" }}{{ end }}
{{- if or (not (get $given "preStop")) (hasKey (default dict (get $given "preStop")) "exec") }}{{ $_ := set $given "preStop" $pause }}{{ end }}
{{- toYaml $given }}
{{- end }}

{{- define "pacer.podSecurityContext" -}}
{{- $hardened := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- toYaml (mergeOverwrite $hardened (deepCopy (default dict .))) }}
{{- end }}

{{- define "pacer.securityContext" -}}
{{- $hardened := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
{{- toYaml (mergeOverwrite $hardened (deepCopy (default dict .))) }}
{{- end }}

{{/* Where a pod goes, by the values that both pods have. Takes `root`, `values` and `selector`. */}}
{{- define "pacer.scheduling" -}}
{{- with default (include "pacer.priorityClassName" .root) .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
{{- if .values.affinity }}
  {{- toYaml .values.affinity | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          namespaceSelector: {}
          labelSelector:
            matchExpressions:
              - {key: actions-runner, operator: Exists}
{{- end }}
topologySpreadConstraints:
{{- if .values.topologySpreadConstraints }}
  {{- toYaml .values.topologySpreadConstraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- .selector | nindent 8 }}
{{- end }}
{{- end }}

{{/* Flags of whatever serves metrics, as a YAML list. */}}
{{- define "pacer.metricsFlags" -}}
{{- $metrics := .Values.pacer.metrics }}
{{- $flags := list }}
{{- if $metrics.tls.enabled }}
{{- $flags = append $flags "--metrics-tls" }}
{{- if $metrics.tls.secretName }}
{{- $flags = concat $flags (list "--metrics-tls-cert=/etc/pacer-metrics-tls/tls.crt" "--metrics-tls-key=/etc/pacer-metrics-tls/tls.key") }}
{{- end }}
{{- end }}
{{- if $metrics.authorization }}{{ $flags = append $flags "--metrics-authorization" }}{{ end }}
{{- toYaml $flags }}
{{- end }}

{{/* A probe of the metrics port. */}}
{{- define "pacer.probe" -}}
httpGet: {path: {{ .path }}, port: metrics-port{{ if .root.Values.pacer.metrics.tls.enabled }}, scheme: HTTPS{{ end }}}
{{- end }}

{{/* The Secret with the certificate of the metrics; empty where there is none. */}}
{{- define "pacer.metricsSecret" -}}
{{- $tls := .Values.pacer.metrics.tls }}
{{- if $tls.enabled }}{{ $tls.secretName }}{{ end }}
{{- end }}

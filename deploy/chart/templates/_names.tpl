{{/* ARC's chart is called so, and names that others depend on are made of that. */}}
{{- define "pacer.name" -}}
{{- default "actions-runner-controller" .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The operator's full name, by ARC's rule. */}}
{{- define "pacer.fullname" -}}
{{- $name := default "actions-runner-controller" .Values.nameOverride }}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The full name of a server, by ARC's rule. Takes `root`, `server` (its part of the name) and `values` (its values). */}}
{{- define "pacer.serverFullname" -}}
{{- $name := default "actions-runner-controller" .values.nameOverride }}
{{- $instance := printf "%s-%s" .root.Release.Name .server }}
{{- if .values.fullnameOverride }}{{ .values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name $instance }}{{ $instance | trunc 63 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s-%s" .root.Release.Name $name .server | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "pacer.webhookFullname" -}}
{{- include "pacer.serverFullname" (dict "root" . "server" "github-webhook-server" "values" .Values.githubWebhookServer) }}
{{- end }}

{{- define "pacer.actionsMetricsFullname" -}}
{{- include "pacer.serverFullname" (dict "root" . "server" "actions-metrics-server" "values" .Values.actionsMetricsServer) }}
{{- end }}

{{- define "pacer.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{/* The namespace that is served; empty for all. */}}
{{- define "pacer.watchNamespace" -}}
{{- if .Values.scope.singleNamespace }}{{ default (include "pacer.namespace" .) .Values.scope.watchNamespace }}{{ end }}
{{- end }}

{{/* What names of objects that belong to no namespace begin with: each installation for one namespace has its own. */}}
{{- define "pacer.clusterPrefix" -}}
{{- if .Values.scope.singleNamespace }}{{ include "pacer.namespace" . }}-{{ end }}{{ include "pacer.fullname" . }}
{{- end }}

{{/* Deployments have other names than ARC's, whose selectors can't be changed. */}}
{{- define "pacer.deploymentName" -}}
{{- printf "%s-pacer" (include "pacer.fullname" . | trunc 57 | trimSuffix "-") }}
{{- end }}

{{- define "pacer.webhookDeploymentName" -}}
{{- printf "%s-pacer" (include "pacer.webhookFullname" . | trunc 57 | trimSuffix "-") }}
{{- end }}

{{/* ARC's name of the Service for metrics, and one like it for the webhook server. */}}
{{- define "pacer.metricsServiceName" -}}
{{- printf "%s-metrics-service" (include "pacer.fullname" . | trunc 47) }}
{{- end }}

{{- define "pacer.webhookMetricsServiceName" -}}
{{- printf "%s-metrics-service" (include "pacer.webhookFullname" . | trunc 47) }}
{{- end }}

{{- define "pacer.authSecretName" -}}
{{- default (include "pacer.fullname" .) .Values.authSecret.name }}
{{- end }}

{{- define "pacer.webhookSecretName" -}}
{{- default (include "pacer.webhookFullname" .) .Values.githubWebhookServer.secret.name }}
{{- end }}

{{- define "pacer.actionsMetricsSecretName" -}}
{{- default (include "pacer.actionsMetricsFullname" .) .Values.actionsMetricsServer.secret.name }}
{{- end }}

{{- define "pacer.serviceAccountName" -}}
{{- default (ternary (include "pacer.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{- define "pacer.webhookServiceAccountName" -}}
{{- $account := .Values.githubWebhookServer.serviceAccount }}
{{- default (ternary (include "pacer.webhookFullname" .) "default" $account.create) $account.name }}
{{- end }}

{{- define "pacer.priorityClassName" -}}
{{- if .Values.pacer.priorityClass.create }}{{ include "pacer.clusterPrefix" . }}-pacer{{ end }}
{{- end }}

{{- define "pacer.leaseName" -}}
{{- default "actions-runner-controller" .Values.leaderElectionId }}
{{- end }}

{{- define "pacer.image" -}}
{{- $image := .Values.pacer.image }}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ default .Chart.AppVersion (include "pacer.text" $image.tag) }}
{{- end }}
{{- end }}

{{/* The selector of a part, the same as ARC's: what others select by these labels goes on selecting. */}}
{{- define "pacer.operatorSelector" -}}
app.kubernetes.io/name: {{ include "pacer.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pacer.webhookSelector" -}}
app.kubernetes.io/name: {{ default "actions-runner-controller" .Values.githubWebhookServer.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ printf "%s-github-webhook-server" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Labels that all objects have. */}}
{{- define "pacer.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: pacer
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "pacer.operatorLabels" -}}
{{ include "pacer.operatorSelector" . }}
{{ include "pacer.commonLabels" . }}
{{- end }}

{{- define "pacer.webhookLabels" -}}
{{ include "pacer.webhookSelector" . }}
{{ include "pacer.commonLabels" . }}
{{- end }}

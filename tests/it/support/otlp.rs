//! What arrives at a collector, read with the types that are generated from OpenTelemetry's protocol.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use super::provider::Call;

/// The body of an export request.
pub fn request(call: &Call) -> ExportTraceServiceRequest {
    assert_eq!(call.header("content-type"), Some("application/x-protobuf"));
    ExportTraceServiceRequest::decode(call.body.as_slice()).expect("an export request")
}

/// Its spans, which all come from one resource.
pub fn spans(call: &Call) -> Vec<Span> {
    let [resource] = <[_; 1]>::try_from(request(call).resource_spans).expect("one resource");
    resource.scope_spans.into_iter().flat_map(|scope| scope.spans).collect()
}

/// Who sent it.
pub fn resource(call: &Call) -> Resource {
    request(call).resource_spans[0].resource.clone().expect("a resource")
}

/// The attribute of this name, as text.
pub fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = &attributes.iter().find(|attribute| attribute.key == key)?.value;
    match value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}

/// An id as it is written in a `traceparent`.
pub fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

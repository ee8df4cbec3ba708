#include "conformance/case.hpp"

namespace conformance {

namespace {

nlohmann::json parse(const std::string& key, std::string_view text) {
  auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) throw CaseError("metadata " + key + " is missing or not JSON");
  return json;
}

}  // namespace

Case::Case(const std::filesystem::path& path, bool is_float)
    : name_(path.stem().string()),
      group_(std::filesystem::absolute(path).parent_path().filename().string()),
      folder_(path.parent_path()),
      file_(heed::SafetensorsReader::open(path.string())) {
  if (!is_case()) return;
  attributes_ = Attributes(parse("attributes", file_.metadata("attributes")));
  if (is_onnx()) {  // ONNX's own runner: |got - want| <= 1e-7 + 1e-3 |want|
    if (!file_.metadata("tolerance").empty()) throw CaseError("metadata tolerance is not known to this runner");
    tolerance_ = 1e-3;
    floor_ = 1e-4;
    return;
  }
  tolerance_ = tolerance(is_float ? "float32" : "float64");
  // Where only some rows count, the others are stored as 0, which is what heed promises for them: all are compared.
  const std::string_view counted = file_.metadata("compare");
  if (!counted.empty() &&
      counted != "outputs where input.valid is true; padded rows are stored as 0 and their grad_output is 0" &&
      counted != "rows where input.attention_mask is 1 (padded rows are stored as 0)" &&
      counted != "outputs where input.attention_mask is 1 (padded rows are stored as 0, their grad_output is 0)") {
    throw CaseError("metadata compare is not known to this runner: " + std::string(counted));
  }
}

double Case::tolerance(const std::string& type) const {
  return Attributes(parse("tolerance", file_.metadata("tolerance")), "tolerance").get<double>(type);
}

void Case::check_values(const std::string& tensor, const std::string& how, std::span<const heed::Index> shape,
                        std::span<const double> got, double tolerance) {
  const heed::TensorInfo& info = file_.info(tensor);
  checked_.insert(tensor);
  Finding finding;
  finding.tensor = how.empty() ? tensor : tensor + " (" + how + ")";
  finding.tolerance = tolerance;
  if (!std::equal(shape.begin(), shape.end(), info.shape().begin(), info.shape().end())) {
    finding.fault = "expected " + shape_text(info.shape()) + ", got " + shape_text(shape);
    findings_.push_back(std::move(finding));
    return;
  }
  std::vector<double> want;
  if (heed::converts_to<double>(info.dtype)) {
    const auto values = file_.read_flat<double>(tensor);
    want.assign(values.data(), values.data() + values.size());
  } else {
    finding.tolerance = 0;
    const auto values = file_.read_flat<std::int64_t>(tensor);
    for (const std::int64_t value : values.span()) want.push_back(static_cast<double>(value));
  }
  finding.comparison = compare(got, want, finding.tolerance, floor_);
  if (!want.empty()) finding.place = place_text(finding.comparison.where, info.shape());
  findings_.push_back(std::move(finding));
}

void Case::finish() const {
  attributes_.finish();
  for (const heed::TensorInfo& tensor : file_.tensors()) {
    const auto begins = [&](std::string_view start) { return tensor.name.rfind(start, 0) == 0; };
    if (begins("grad.") || begins("input.grad_")) continue;  // gradients come with training
    if (begins("output.") ? checked_.count(tensor.name) == 0 : used_.count(tensor.name) == 0) {
      throw CaseError(tensor.name + " is not known to this runner");
    }
  }
}

}  // namespace conformance

// heed_conformance: runs conformance cases and says which of them fail. See README.md.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <map>

#include "conformance/run.hpp"

namespace conformance {

Adapter find_adapter(const std::string& op, const std::string& preset) {
  static const std::map<std::pair<std::string, std::string>, Adapter> adapters = {
      {{"RotaryEmbedding", ""}, run_rotary_embedding},
      {{"RotaryEmbedding", "seed"}, run_seed_rotary_embedding},
      {{"apply_rotary_pos_emb", "seed"}, run_apply_rotary_pos_emb},
      {{"rotate_half", "seed"}, run_rotate_half},
      {{"repeat_kv", "seed"}, run_repeat_kv},
      {{"attention", ""}, run_attention},
      {{"attention_layer", ""}, run_attention_layer},
      {{"bert_attention", ""}, run_bert_attention},
      {{"attention_varlen", ""}, run_attention_varlen},
      {{"alibi_slopes", ""}, run_alibi_slopes},
      {{"infini_attention", ""}, run_infini_attention},
      {{"InfiniAttention", ""}, run_infini_attention_layer},
      {{"InfiniAttention", "seed"}, run_seed_infini_attention},
      {{"MultiHeadSelfAttention", "seed"}, run_seed_multi_head_self_attention},
      {{"causal_lm", ""}, run_causal_lm},
      {{"bert_encoder", ""}, run_bert_encoder},
      {{"sentence_embedding", ""}, run_sentence_embedding},
      {{"Attention", "onnx"}, run_onnx_attention},
      {{"LinearAttention", "onnx"}, run_onnx_linear_attention},
      {{"RotaryEmbedding", "onnx"}, run_onnx_rotary_embedding},
      {{"Softmax", "onnx"}, run_onnx_softmax},
      {{"TensorScatter", "onnx"}, run_onnx_tensor_scatter},
  };
  const auto found = adapters.find({op, preset});
  return found == adapters.end() ? nullptr : found->second;
}

namespace {

namespace fs = std::filesystem;

enum class Outcome { passed, failed, skipped };

struct Verdict {
  Outcome outcome = Outcome::passed;
  std::string group;
  std::string text;
  bool note = false;  // to be said although nothing failed
};

// The findings as one line: the worst tensor, and how many others are wrong.
std::string failures_text(const std::vector<Finding>& findings) {
  const Finding* worst = nullptr;
  std::size_t wrong = 0;
  const auto badness = [](const Finding& finding) {
    if (!finding.fault.empty()) return std::numeric_limits<double>::infinity();
    return finding.tolerance > 0 ? finding.comparison.largest / finding.tolerance : finding.comparison.largest;
  };
  for (const Finding& finding : findings) {
    if (finding.fault.empty() && finding.comparison.passed()) continue;
    ++wrong;
    if (worst == nullptr || badness(finding) > badness(*worst)) worst = &finding;
  }
  if (worst == nullptr) return "";
  std::string text = worst->tensor + ": ";
  if (!worst->fault.empty()) {
    text += worst->fault;
  } else {
    const Comparison& found = worst->comparison;
    char values[120];
    std::snprintf(values, sizeof values, " (expected %.17g, got %.17g)", found.want, found.got);
    text += "largest error " + number_text(found.largest) + " at " + worst->place + values + ", tolerance " +
            number_text(worst->tolerance) + ", " + std::to_string(found.wrong) + " of " +
            std::to_string(found.elements) + " wrong";
  }
  if (wrong > 1) text += "; and " + std::to_string(wrong - 1) + " more";
  return text;
}

std::string passes_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += (text.empty() ? "" : ", ") + finding.tensor + " " + number_text(finding.comparison.largest) + " of " +
            number_text(finding.tolerance);
  }
  return text;
}

Verdict run_case(const fs::path& path, const Setup& setup) {
  Verdict verdict;
  verdict.group = fs::absolute(path).parent_path().filename().string();
  std::string name = path.stem().string();
  const auto fail = [&](const std::string& text) {
    verdict.outcome = Outcome::failed;
    verdict.text = "FAIL " + verdict.group + "/" + name + ": " + text;
    return verdict;
  };
  bool must_be_refused = false;
  try {
    Case test(path, setup.scalar == "float");
    if (!test.is_case()) {
      // The weights of a model, which a case beside its folder is about.
      if (!fs::exists(path.parent_path() / "config.json")) return fail("metadata op is missing");
      verdict.outcome = Outcome::skipped;
      verdict.text = "skip " + verdict.group + "/" + name + ": no case, but a model's weights";
      return verdict;
    }
    // What the seed did there is no example: a hidden_size that its heads do not divide.
    must_be_refused = test.preset() == "seed" && name.find("truncated") != std::string::npos;
    const Adapter adapter = find_adapter(test.op(), test.preset());
    if (adapter == nullptr) {
      return fail("operation " + test.op() + (test.preset().empty() ? "" : " of preset " + test.preset()) +
                  " is not known to this runner");
    }
    adapter(test, setup);
    if (must_be_refused) return fail("expected a ShapeError, but it was run");
    const std::string wrong = failures_text(test.findings());
    if (!wrong.empty()) return fail(wrong);
    test.finish();
    verdict.text = "pass " + verdict.group + "/" + name + ": " + passes_text(test.findings());
  } catch (const heed::ShapeError& error) {
    if (!must_be_refused) return fail(error.what());
    verdict.text = "pass " + verdict.group + "/" + name + ": refused: " + error.what();
  } catch (const CaseSkipped& reason) {
    verdict.outcome = Outcome::skipped;
    verdict.note = true;
    verdict.text = "skip " + verdict.group + "/" + name + ": " + reason.what();
  } catch (const std::exception& error) {
    return fail(error.what());
  }
  return verdict;
}

// The files to run: those given, and all .safetensors files in the folders given, in order of their names.
std::vector<fs::path> files_of(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      files.emplace_back(path);
      continue;
    }
    const auto first = static_cast<std::ptrdiff_t>(files.size());
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file() && entry.path().extension() == ".safetensors") files.push_back(entry.path());
    }
    std::sort(files.begin() + first, files.end());
  }
  return files;
}

int run(const std::vector<std::string>& paths, const Setup& setup, bool verbose) {
  struct Count {
    int passed = 0;
    int failed = 0;
    int skipped = 0;
    void add(Outcome outcome) {
      ++(outcome == Outcome::passed ? passed : outcome == Outcome::failed ? failed : skipped);
    }
    void print(const std::string& name) const {
      std::printf("%s%d passed, %d failed, %d skipped\n", name.c_str(), passed, failed, skipped);
    }
  };
  std::map<std::string, Count> groups;
  Count all;
  const std::vector<fs::path> files = files_of(paths);
  if (files.empty()) {
    std::fprintf(stderr, "heed_conformance: there is no .safetensors file under the paths given\n");
    return 2;
  }
  for (const fs::path& file : files) {
    const Verdict verdict = run_case(file, setup);
    groups[verdict.group].add(verdict.outcome);
    all.add(verdict.outcome);
    if (verbose || verdict.note || verdict.outcome == Outcome::failed) std::printf("%s\n", verdict.text.c_str());
  }
  for (const auto& [group, count] : groups) count.print(group + ": ");
  all.print("");
  return all.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  CLI::App app("Runs heed on conformance cases and compares with their expected results.", "heed_conformance");
  conformance::Setup setup;
  std::vector<std::string> paths;
  bool verbose = false;
  app.add_option("--backend", setup.backend, "What runs them")
      ->check(CLI::IsMember({
        "reference", "simd", "cpu", "eigen", "device_host",
#if HEED_TEST_COMPILED
            "compiled"
#endif
      }))
      ->capture_default_str();
  app.add_option("--scalar", setup.scalar, "In which type; the case names the tolerance for each")
      ->check(CLI::IsMember({"double", "float"}))
      ->capture_default_str();
  app.add_option("--weights", setup.weights, "The folder of the model whose weights the cases are without")
      ->check(CLI::ExistingDirectory);
  app.add_flag("--verbose", verbose, "A line for passing cases, too, with every tensor's largest error");
  app.add_option("PATH", paths, "Case files, and folders of them")->required()->check(CLI::ExistingPath);
  try {
    app.parse(argc, argv);
    return conformance::run(paths, setup, verbose);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heed_conformance: %s\n", error.what());
    return 2;
  }
}

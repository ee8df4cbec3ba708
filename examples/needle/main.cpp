// heed_needle: hides a pass key in a text of any length, streams the text through a small Infini-attention transformer
// in constant memory, and asks for the key.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <random>
#include <stdexcept>

#include "haystack.hpp"
#include "heed/io/mapped_file.hpp"
#include "model.hpp"
#include "report.hpp"
#include "search.hpp"
#include "threads.hpp"

namespace needle {

namespace {

enum Exit { every_key_found = 0, a_key_missed = 1, bad_input = 2 };

struct Options {
  std::string file;
  std::int64_t length = 1'000'000;
  double depth = 0.5;
  std::string key = "12345";
  std::int64_t trials = 0;
  std::int64_t seed = 1;
  std::int64_t threads = 0;
  bool no_memory = false;
  bool json = false;
  std::string model = HEED_NEEDLE_MODEL;

  bool depth_given = false;
  bool key_given = false;
  bool table() const { return trials > 0; }
};

// Something the user can mend; ends the program with a message and exit code 2.
struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check(const Options& options, bool trials_given) {
  if (!(options.depth >= 0 && options.depth <= 1)) throw BadInput("--depth must be between 0 and 1");
  if (options.key.size() != 5 || options.key.find_first_not_of("0123456789") != std::string::npos) {
    throw BadInput("--key must be five digits, got \"" + printable(options.key) + "\"");
  }
  if (options.length < 1) throw BadInput("--length must be at least 1");
  if (options.length > std::int64_t{1} << 50) throw BadInput("--length must be at most 2^50");
  if (trials_given && options.trials < 1) throw BadInput("--trials must be at least 1");
  if (options.trials > 100'000) throw BadInput("--trials must be at most 100,000");
  if (options.seed < 0) throw BadInput("--seed must not be negative");
  if (options.threads < 0 || options.threads > 1024) throw BadInput("--threads must be 1 to 1024, or 0 for all cores");
}

// Trial i is hidden at one of five depths in turn, in a text of its own.
constexpr int depths = 5;
double depth_of(const Options& options, std::int64_t trial) {
  if (!options.table() || options.depth_given) return options.depth;
  const std::int64_t count = std::min<std::int64_t>(options.trials, depths);
  return count == 1 ? 0.5 : static_cast<double>(trial % count) / static_cast<double>(count - 1);
}

std::string random_key(std::mt19937_64& random) {
  std::string key(5, '0');
  for (char& digit : key) digit = static_cast<char>('0' + random() % 10);
  return key;
}

int run(const Options& options) {
  heed::MappedFile file;
  if (!options.file.empty()) {
    if (const heed::Problem problem = file.open("text", options.file)) throw BadInput(problem.text());
    if (file.bytes().empty()) throw BadInput("text: " + options.file + ": is empty");
  }
  const auto model_file = heed::SafetensorsReader::open(options.model);
  const Model model(model_file, options.no_memory ? Memory::closed : Memory::open);
  const ModelText& words = model.text();

  Report report;
  std::vector<Haystack> haystacks;
  std::mt19937_64 random(static_cast<std::uint64_t>(options.seed));
  const std::int64_t count = options.table() ? options.trials : 1;
  for (std::int64_t i = 0; i < count; ++i) {
    Asked asked;
    asked.depth = depth_of(options, i);
    asked.key = options.table() && !options.key_given ? random_key(random) : options.key;
    const std::string sentence = needle_with(words.needle, asked.key);
    Plan plan;
    const std::string problem =
        make_plan(options.length, asked.depth, static_cast<std::int64_t>(sentence.size()),
                  static_cast<std::int64_t>(words.question.size()), answer_size, model.segment_length(), plan);
    if (!problem.empty()) throw BadInput(problem);
    asked.needle_at = plan.needle_at;
    asked.near = plan.near(model.segment_length());
    const std::uint64_t start = options.table() ? random() : static_cast<std::uint64_t>(options.seed);
    Text text =
        options.file.empty() ? Text::word_salad(start) : Text::repeated(file.bytes(), options.table() ? start : 0);
    haystacks.emplace_back(plan, std::move(text), sentence, words.question);
    if (i == 0) {
      report.needle = sentence;
      report.length = plan.question_at;
      report.question_at = plan.question_at;
    }
    report.asked.push_back(std::move(asked));
  }

  // The gates must be open for the test vector, whatever is asked for afterwards.
  report.verified_to = verify(options.no_memory ? Model(model_file, Memory::open) : model, model_file);

  common::Threads threads(static_cast<int>(options.threads));
  const heed::Cpu cpu(threads);
  {
    common::ProgressBar bar(count * haystacks.front().plan().size());
    const Found found = search(model, cpu, haystacks, [&bar](std::int64_t done) { bar.show(done); });
    for (std::size_t i = 0; i < found.answers.size(); ++i) report.asked[i].answer = found.answers[i];
    report.bytes = found.bytes;
    report.seconds = found.seconds;
    report.state_bytes = found.state_bytes;
  }
  report.text = options.file.empty() ? "word salad, seed " + std::to_string(options.seed)
                                     : printable(options.file) + ", repeated as needed";
  report.backend = heed::Cpu::name();
  report.threads = cpu.concurrency();
  report.memory = !options.no_memory;
  report.parameters = model.parameter_count();
  report.kv_cache_bytes = model.kv_cache_bytes(haystacks.front().plan().size());
  std::fputs((options.json ? as_json(report, options.table()) : as_text(report, options.table())).c_str(), stdout);
  return report.right() == count ? every_key_found : a_key_missed;
}

}  // namespace

}  // namespace needle

int main(int argc, char** argv) {
  needle::Options options;
  CLI::App app(
      "Hides a five-digit pass key in a long text, streams the text through a small Infini-attention "
      "transformer in constant memory, and asks for the key.",
      "heed_needle");
  app.add_option("FILE", options.file, "The text, repeated to the length; without it, random words");
  app.add_option("--length", options.length, "Bytes of text, with the key's sentence in it")->capture_default_str();
  auto* depth = app.add_option("--depth", options.depth, "Where the key is hidden: 0 the start, 1 the end")
                    ->capture_default_str();
  auto* key = app.add_option("--key", options.key, "The key, five digits")->capture_default_str();
  auto* trials = app.add_option("--trials", options.trials,
                                "Hide so many random keys, each in a text of its own, at five depths (or at --depth), "
                                "and print a table");
  app.add_option("--seed", options.seed, "Of random words and keys")->capture_default_str();
  app.add_option("--threads", options.threads, "0: all cores")->capture_default_str();
  app.add_flag("--no-memory", options.no_memory, "Close the memory's gates; only a key near the question is found");
  app.add_flag("--json", options.json, "Print JSON");
  app.add_option("--model", options.model, "Weights and test vector")->capture_default_str();
  app.footer("Exit code: 0 every key was found, 1 a key was missed, 2 bad input.");

  try {
    app.parse(argc, argv);
    options.depth_given = depth->count() > 0;
    options.key_given = key->count() > 0;
    needle::check(options, trials->count() > 0);
    return needle::run(options);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::fprintf(stderr, "heed_needle: %s\n", error.what());
  } catch (const std::exception& error) {  // what the user gave, or what is wrong with a file
    std::fprintf(stderr, "heed_needle: %s\n", error.what());
  }
  return needle::bad_input;
}

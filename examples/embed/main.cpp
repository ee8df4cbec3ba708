// heed_embed: embeddings of sentences, and a search by meaning in the lines of a file, with all-MiniLM-L6-v2 or another
// sentence-transformers model of its kind.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "encoder.hpp"
#include "heed/io/safetensors_writer.hpp"
#include "terminal.hpp"
#include "unicode.hpp"

namespace embed {

namespace {

enum Exit { done = 0, bad_input = 2 };

struct Options {
  std::string folder;
  std::vector<std::string> texts;
  std::vector<std::string> search;  // query, file
  std::string file;
  std::string output;
  std::int64_t top = 10;
  std::int64_t threads = 0;
  bool json = false;
};

// Something the user can mend; ends the program with a message and exit code 2.
struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check(const Options& options) {
  if (options.top < 1) throw BadInput("--top must be at least 1");
  if (options.threads < 0 || options.threads > 1024) throw BadInput("--threads must be 1 to 1024, or 0 for all cores");
  const int sources =
      (options.texts.empty() ? 0 : 1) + (options.file.empty() ? 0 : 1) + (options.search.empty() ? 0 : 1);
  if (sources == 0) throw BadInput("nothing to embed: give texts, --file FILE or --search QUERY FILE");
  if (sources > 1) throw BadInput("give texts, --file or --search, one of them");
  if (!options.output.empty() && !options.search.empty()) throw BadInput("--output goes with texts or --file");
}

struct Line {
  std::int64_t number = 0;  // from 1
  std::string text;
};

// Those that hold more than spaces.
std::vector<Line> read_lines(const std::string& path) {
  const std::string bytes = text::read_file(path);
  std::vector<Line> lines;
  std::int64_t number = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    std::string line = bytes.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    ++number;
    if (line.find_first_not_of(" \t") != line.npos) lines.push_back({number, std::move(line)});
    at = end + 1;
  }
  if (lines.empty()) throw BadInput(path + ": has no line to embed");
  return lines;
}

// Of a file for the terminal: letters as they are, control characters not.
std::string shown(const std::string& line) {
  std::string clean = text::clean_utf8(line);
  for (char& letter : clean) {
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F) letter = ' ';
  }
  return clean;
}

struct Speed {
  std::int64_t lines = 0;
  double seconds = 0;
};

heed::Tensor<float, 2> embed_with_bar(const Encoder& encoder, const std::vector<std::string>& texts,
                                      common::Threads& threads, Speed& speed) {
  const auto start = std::chrono::steady_clock::now();
  common::ProgressBar bar(static_cast<std::int64_t>(texts.size()), "lines");
  auto embeddings = encoder.embed(texts, threads, [&bar](std::int64_t count) { bar.show(count); });
  speed.lines = static_cast<std::int64_t>(texts.size());
  speed.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return embeddings;
}

void print_embeddings(const std::vector<std::string>& texts, heed::View<const float, 2> embeddings, bool json) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::span<const float> row = embeddings[static_cast<heed::Index>(i)].span();
    if (json) {
      const nlohmann::ordered_json line = {{"text", texts[i]}, {"embedding", row}};
      std::puts(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    } else {
      const char* between = "";
      for (const float value : row) {
        std::printf("%s%.9g", between, static_cast<double>(value));
        between = " ";
      }
      std::puts("");
    }
  }
}

void search(const Options& options, const Encoder& encoder, common::Threads& threads) {
  const std::vector<Line> lines = read_lines(options.search[1]);
  std::vector<std::string> texts;
  for (const Line& line : lines) texts.push_back(line.text);
  Speed speed;
  const auto embeddings = embed_with_bar(encoder, texts, threads, speed);
  const auto query = encoder.embed(std::span(&options.search[0], 1), threads);

  const std::vector<float> cosine = cosines(query, embeddings, threads);
  std::vector<std::size_t> order(lines.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return cosine[i]; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(options.top)));
  if (options.json) {
    nlohmann::ordered_json found = nlohmann::ordered_json::array();
    for (const std::size_t i : order) {
      found.push_back({{"cosine", cosine[i]}, {"line", lines[i].number}, {"text", lines[i].text}});
    }
    const nlohmann::ordered_json report = {
        {"query", options.search[0]}, {"found", found}, {"lines", speed.lines}, {"seconds", speed.seconds}};
    std::puts(report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return;
  }
  for (const std::size_t i : order) {
    std::printf("%.3f  %lld: %s\n", static_cast<double>(cosine[i]), static_cast<long long>(lines[i].number),
                shown(lines[i].text).c_str());
  }
  std::printf(
      "\n%s lines in %.2f s: %s lines a second (%d thread%s)\n", common::with_commas(speed.lines).c_str(),
      speed.seconds,
      common::with_commas(static_cast<std::int64_t>(static_cast<double>(speed.lines) / std::max(speed.seconds, 1e-9)))
          .c_str(),
      threads.concurrency(), threads.concurrency() == 1 ? "" : "s");
}

int run(const Options& options) {
  const Encoder encoder(options.folder);
  common::Threads threads(static_cast<int>(options.threads));
  if (!options.search.empty()) {
    search(options, encoder, threads);
    return done;
  }
  std::vector<std::string> texts = options.texts;
  if (!options.file.empty()) {
    for (Line& line : read_lines(options.file)) texts.push_back(std::move(line.text));
  }
  Speed speed;
  const auto embeddings = embed_with_bar(encoder, texts, threads, speed);
  if (options.output.empty()) {
    print_embeddings(texts, embeddings, options.json);
  } else {
    heed::SafetensorsWriter writer;
    writer.add("embeddings", embeddings.view());
    writer.write(options.output);
  }
  return done;
}

}  // namespace

}  // namespace embed

int main(int argc, char** argv) {
  embed::Options options;
  CLI::App app(
      "Sentence embeddings with all-MiniLM-L6-v2, or another model of BERT's kind that sentence-transformers made: "
      "prints "
      "a line of numbers for each text, or ranks the lines of a file by how near their meaning is to a query's.",
      "heed_embed");
  app.add_option("DIR", options.folder, "Folder of the model: config.json, model.safetensors, vocab.txt")->required();
  app.add_option("TEXT", options.texts, "What to embed");
  app.add_option("--search", options.search, "Rank the lines of FILE")->expected(2)->type_name("QUERY FILE");
  app.add_option("--top", options.top, "How many lines --search shows")->capture_default_str();
  app.add_option("--file", options.file, "Embed the lines of this file, but empty ones");
  app.add_option("--output", options.output, "Write the embeddings to a safetensors file, as \"embeddings\"");
  app.add_option("--threads", options.threads, "0: all cores")->capture_default_str();
  app.add_flag("--json", options.json, "Print JSON");
  app.footer("Exit code: 0 done, 2 bad input.");

  try {
    app.parse(argc, argv);
    embed::check(options);
    return embed::run(options);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::fprintf(stderr, "heed_embed: %s\n", error.what());
  } catch (const std::exception& error) {  // what the user gave, or what is wrong with a file
    std::fprintf(stderr, "heed_embed: %s\n", error.what());
  }
  return embed::bad_input;
}

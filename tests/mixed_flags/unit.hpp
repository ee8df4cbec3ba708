// What a unit compiled with its own flags offers. Nothing of heed stands here: layers and backends do not cross units.
#pragma once

struct Result {
  float product;      // a value the unit computed: 1·10 + 2·1
  float answer;       // of a layer with a state, which must be 3
  const char* error;  // the text of an error it provoked and survived, as exception or through the handler
};

Result baseline_throws();
Result v3_throws();
Result v3_aborts();

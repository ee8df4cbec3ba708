// Runs the blocks of the documentation that print. The functions are made by extract.cmake.
void heed_docs_guides();
void heed_docs_operations();

int main() {
  heed_docs_guides();
  heed_docs_operations();
}

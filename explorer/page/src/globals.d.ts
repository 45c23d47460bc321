/** Whether this is the page that is one file and belongs to no server. */
declare const __STANDALONE__: boolean;
